"""`ultrafast generate`: continue a raw text, without chat template."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ultrafast.cli.options import DEFAULT_MODEL, Context, Isa, Json, Model, Seed, Temperature, Threads

if TYPE_CHECKING:
    from ultrafast.types import Output


def generate(
    prompt: Annotated[str, typer.Argument(help="The text to continue; - reads it from stdin.")],
    model: Model = DEFAULT_MODEL,
    max_tokens: Annotated[int, typer.Option(min=1, help="Stop after so many tokens.")] = 128,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be given several times.")] = None,
    threads: Threads = None,
    isa: Isa = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """Continue a text, as it is.

    The special tokens in it are parsed, and nothing is added.

    Example: ultrafast generate "The capital of France is" --max-tokens 8
    """
    from ultrafast.cli.progress import ensure_on_disk
    from ultrafast.engine.engine import Engine

    text = sys.stdin.read() if prompt == "-" else prompt
    sampling: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    ensure_on_disk(model)
    with Engine(model, threads=threads, isa=isa, context=context) as engine:
        if as_json:
            _print_json(engine.generate(text, stop=tuple(stop or ()), **sampling))
            return
        try:
            for delta in engine.stream(text, stop=tuple(stop or ()), **sampling):
                print(delta.text, end="", flush=True)
        except KeyboardInterrupt:
            print()
            raise
        print()


def _print_json(output: Output) -> None:
    import json

    timings = output.timings
    record = {
        "text": output.text,
        "token_ids": list(output.token_ids),
        "finish_reason": output.finish_reason,
        "prompt_tokens": output.usage.prompt_tokens,
        "completion_tokens": output.usage.completion_tokens,
        "prefill_s": timings.prefill_s,
        "decode_s": timings.decode_s,
    }
    print(json.dumps(record, indent=2))
