"""`ultrafast bench …`: measure; one subcommand each measurement."""

from __future__ import annotations

from typing import Annotated

import typer

from ultrafast.cli import bench_agent, bench_api, bench_exam
from ultrafast.cli.options import DEFAULT_MODEL, Isa, Model, Threads

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def bench() -> None:
    """Measure: an endpoint, or the engine by itself.

    Example: ultrafast bench api --tier ultrafast --tier default
    """


@app.command()
def engine(
    model: Model = DEFAULT_MODEL,
    threads: Threads = None,
    isa: Isa = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Rounds, each of which measures everything; default: 5, quick: 2.")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Also show where a token's time goes, by stage.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out long contexts.")] = False,
    json_file: Annotated[
        typer.FileTextWrite | None,
        typer.Option("--json", lazy=False, metavar="FILE", help="Also write every sample to this file."),
    ] = None,
) -> None:
    """Measure decode and prompt speed, first-token and load time, and memory.

    Beside each speed stands its limit, measured in the same round: the time to read the bytes that it needs, or to
    multiply what is in cache, whichever is longer. Ctrl-C ends the run with what is measured by then.

    Example: ultrafast bench engine --threads 2 --profile --json engine.json
    """
    from ultrafast.bench.engine import report
    from ultrafast.bench.engine.speed import Measurement
    from ultrafast.cli.progress import ensure_on_disk, step_bar
    from ultrafast.engine.engine import Engine

    ensure_on_disk(model)
    with step_bar() as show:
        measurement = Measurement(
            lambda: Engine(model, threads=threads, isa=isa),
            repeats=repeats or (2 if quick else 5),
            quick=quick,
            profile=profile,
            on_progress=show,
        )
        try:
            measurement.run()
        except KeyboardInterrupt:
            if measurement.result is None:
                raise
    assert measurement.result
    print(report.report(measurement.result))
    if json_file:
        json_file.write(report.to_json(measurement.result))
    if not measurement.result.complete:
        raise typer.Exit(130)


app.command("api")(bench_api.api)
app.command("agent")(bench_agent.agent)
app.command("exam")(bench_exam.exam)
