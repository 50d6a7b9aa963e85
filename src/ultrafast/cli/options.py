"""Options that several commands share, so that they read alike everywhere."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_URL = "http://127.0.0.1:8000"

Model = Annotated[str, typer.Option(help="Model: a known name, a path, or hf:ORG/REPO[/FILE].")]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        help="Worker threads; default: one per physical core allowed.",
        callback=lambda threads: _mind_the_cores(threads),
    ),
]
Isa = Annotated[
    str | None,
    typer.Option(
        help="Instruction set: avx512vnni, avx2, scalar or reference (plain fp32); "
        "default: ULTRAFAST_ISA, else the best this processor has."
    ),
]
Context = Annotated[int | None, typer.Option(min=1, help="Context limit in tokens; default: the model's.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="Stop after so many tokens; default: the context limit.")]
Temperature = Annotated[float, typer.Option(min=0.0, max=2.0, help="0 takes the most likely token every time.")]
Url = Annotated[str, typer.Option(help="Address of a running server.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same tokens.")]


def _mind_the_cores(threads: int | None) -> int | None:
    """Workers wait for each other in every layer, so that those without a core of their own hold up all."""
    if threads is not None and threads > 1:
        from ultrafast.engine.topology import default_threads, detect

        cores = len(default_threads(detect()))
        if threads > cores:
            print(
                f"ultrafast: warning: {threads} threads on {cores} core{'s' * (cores > 1)} are slower than {cores}",
                file=sys.stderr,
            )
    return threads
