"""`ultrafast bench agent`: an agent's task with tools, timed step by step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ultrafast.bench.agent.ways import Way
from ultrafast.cli.endpoint_options import (
    DEFAULT_BASE_URL,
    DEFAULT_KEY_ENV,
    AskedModel,
    BaseUrl,
    KeyEnv,
    PriceInput,
    PriceOutput,
    Tiers,
)
from ultrafast.errors import ConfigError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from ultrafast.bench.agent.measure import Measurement
    from ultrafast.bench.agent.records import Step, TaskRun
    from ultrafast.bench.agent.run import OnStep
    from ultrafast.bench.agent.ways import Arm
    from ultrafast.bench.client.endpoint import Price


def agent(
    url: BaseUrl = DEFAULT_BASE_URL,
    model: AskedModel = None,
    tier: Tiers = None,
    api: Annotated[
        list[Way] | None,
        typer.Option(
            help="How to converse; several times to compare: chat and responses send the whole conversation each time, "
            "responses-continued and socket (a WebSocket) what is new; default: chat."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="In each, every tier and API does the task once.")] = 5,
    steps: Annotated[int, typer.Option(min=3, max=82, help="Steps of the task: each is a call of a tool.")] = 10,
    step_tokens: Annotated[
        int, typer.Option(min=0, help="Limit of the note that the model writes before each call; 0: no notes.")
    ] = 120,
    tool_seconds: Annotated[float, typer.Option(min=0, help="What each tool takes; stands in for slow ones.")] = 0.0,
    temperature: Annotated[
        float,
        typer.Option(
            min=0, max=2, help="Of notes and calls; at 0, small models repeat themselves, which drafts foresee."
        ),
    ] = 0.7,
    seed: Annotated[int, typer.Option(help="Of the order, and of sampling where the API takes one.")] = 1,
    reasoning_effort: Annotated[str | None, typer.Option(help="Sent as it is; default: none.")] = None,
    api_key_env: KeyEnv = DEFAULT_KEY_ENV,
    price_input: PriceInput = None,
    price_output: PriceOutput = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Write results, with every step's timeline.", dir_okay=False, metavar="FILE"),
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a report.", dir_okay=False, metavar="FILE")
    ] = None,
    log_file: Annotated[
        Path | None,
        typer.Option(
            "--log", help="Append each request, a JSON object a line, as its step ends.", dir_okay=False, metavar="FILE"
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Write the conversations of the first task, for --replay.", dir_okay=False, metavar="FILE"),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            help="Send these recorded requests, step by step, in place of the task.",
            exists=True,
            dir_okay=False,
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Time an agent's task: so many steps, each a note by the model, the call of a tool, and the tool.

    At each step the model can call one tool only, and its arguments have one value each, so that any model completes
    the task where the server keeps to schemas. The wall time is split into queue, prefill, decode, network, tools and
    idle, by step. The first tier and API are what the others are compared with. Ctrl-C ends the run with the tasks
    done by then; if none came to its end, the exit code is 1.

    Example: ultrafast bench agent --tier default --tier ultrafast --api chat --api socket --html agent.html
    """
    import asyncio
    from contextlib import ExitStack

    from ultrafast.bench.agent.measure import Measurement
    from ultrafast.bench.agent.replay import read_recording
    from ultrafast.bench.agent.run import Settings
    from ultrafast.cli.endpoint_options import prices_of
    from ultrafast.cli.progress import step_bar

    if replay and record:
        raise ConfigError("--replay has no conversations of its own to --record")
    recording = read_recording(replay) if replay else []
    settings = Settings(steps, step_tokens, tool_seconds, temperature, seed, reasoning_effort)
    prices = prices_of(price_input, price_output)
    arms = asyncio.run(_arms(url, model, tier, api or [Way.CHAT], api_key_env, prices))
    with ExitStack() as stack:
        on_step = _log_to(log_file, arms, stack)
        measurement = Measurement(
            arms,
            settings,
            rounds=rounds,
            recording=recording,
            on_progress=stack.enter_context(step_bar()),
            on_step=on_step,
        )
        interrupted = False
        try:
            asyncio.run(measurement.run())
        except KeyboardInterrupt:
            interrupted = True
            if not measurement.runs:
                raise
    _tell(measurement, json_file, html_file, record)
    if interrupted:
        raise typer.Exit(130)
    if not any(run.is_complete for run in measurement.runs):
        raise typer.Exit(1)


async def _arms(
    url: str,
    model: str | None,
    tiers: Sequence[str] | None,
    apis: Sequence[Way],
    api_key_env: str,
    prices: Sequence[Price],
) -> list[Arm]:
    """One arm a tier and API: every API of the first tier, then of the next."""
    from ultrafast.bench.agent.ways import Arm
    from ultrafast.cli.endpoint_options import endpoints_of, found_at

    found = await found_at(url, model, api_key_env)
    by_way = [endpoints_of(found, url, tiers, way.api, api_key_env, prices) for way in apis]
    return [
        Arm(endpoint, way, takes_salt=found.is_ours)
        for same_tier in zip(*by_way, strict=True)
        for endpoint, way in zip(same_tier, apis, strict=True)
    ]


def _log_to(file: Path | None, arms: Sequence[Arm], stack: ExitStack) -> OnStep:
    """What appends the requests of each step to the file, if there is one."""
    if file is None:
        return lambda run, step: None
    from ultrafast.bench.agent.results import log_lines
    from ultrafast.bench.records import CallLog

    log = stack.enter_context(CallLog(file))
    by_name = {arm.name: arm for arm in arms}

    def append(run: TaskRun, step: Step) -> None:
        for line in log_lines(by_name[run.arm], run, step):
            log.append(line)

    return append


def _tell(measurement: Measurement, json_file: Path | None, html_file: Path | None, record: Path | None) -> None:
    """Print the report, write the files."""
    from rich.console import Console

    from ultrafast.bench.agent import html, results, terminal
    from ultrafast.bench.agent.replay import write_recording
    from ultrafast.bench.records import write_document

    found = results.results_of(
        measurement.arms,
        measurement.settings,
        rounds=measurement.rounds,
        num_recorded=len(measurement.recording),
        runs=measurement.runs,
    )
    console = Console(highlight=False, markup=False)
    console.print(terminal.report(found, width=console.width))
    if json_file:
        write_document(json_file, results.to_document(found))
    if html_file:
        html.page(found).write(html_file)
    if record:
        write_recording(record, measurement.runs[0].histories)
