"""`ultrafast bench …`: measure; one subcommand each measurement."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ultrafast.cli.options import DEFAULT_MODEL, Isa, Model, Threads

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def bench() -> None:
    """Measure speed.

    Example: ultrafast bench engine
    """


@app.command()
def engine(
    model: Model = DEFAULT_MODEL,
    threads: Threads = None,
    isa: Isa = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds, each of which measures everything once.")] = 5,
    json_file: Annotated[
        typer.FileTextWrite | None,
        typer.Option("--json", lazy=False, metavar="FILE", help="Also write every sample to this file."),
    ] = None,
) -> None:
    """Measure decode and prompt speed.

    The speed of a plain sequential read of the same bytes is measured in the same run and stands beside them.

    Example: ultrafast bench engine --threads 2 --json engine.json
    """
    from ultrafast.bench import engine_speed
    from ultrafast.cli.progress import ensure_on_disk
    from ultrafast.engine.engine import Engine

    def announce(number: int) -> None:
        print(f"round {number} of {repeats}" if number else "warming up", file=sys.stderr)

    ensure_on_disk(model)
    with Engine(model, threads=threads, isa=isa) as subject:
        result = engine_speed.measure(subject, repeats=repeats, on_round=announce)
    print(result.report())
    if json_file:
        json_file.write(result.to_json())
