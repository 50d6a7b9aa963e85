"""`ultrafast ab …`: a workflow of one's own under two configurations, and what follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ultrafast.cli.endpoint_options import (
    DEFAULT_BASE_URL,
    DEFAULT_KEY_ENV,
    AskedModel,
    BaseUrl,
    KeyEnv,
    PriceInput,
    PriceOutput,
)
from ultrafast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ultrafast.bench.ab.arms import Wanted
    from ultrafast.bench.ab.run.records import Arm, Task
    from ultrafast.bench.ab.run.workflow import Workflow
    from ultrafast.bench.client.endpoint import Price

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

QUALITY_FAILED = 3

JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write all numbers to this file.")]
HtmlFile = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write the report as a page.")]
Hour = Annotated[
    float | None,
    typer.Option("--hour-value", min=0, help="What an hour of waiting is worth to you, in the unit of the prices."),
]


@app.callback()
def ab() -> None:
    """Compare two configurations on a workflow of your own.

    Example: ultrafast ab run --tier default --tier ultrafast --command "python solve.py" --tasks tasks.jsonl
    """


@app.command()
def run(
    command: Annotated[str | None, typer.Option(help="The workflow as a shell command.")] = None,
    callable: Annotated[
        str | None, typer.Option("--callable", metavar="MODULE:FUNCTION", help="The workflow as a Python function.")
    ] = None,
    requests: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Recorded requests, JSON lines, sent again step by step.")
    ] = None,
    tasks: Annotated[Path | None, typer.Option(metavar="FILE", help="Tasks, one JSON object a line.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Without tasks: pairs to run.")] = 20,
    check: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Decides on success: status 0; gets the output as its input.")
    ] = None,
    url: BaseUrl = DEFAULT_BASE_URL,
    model: AskedModel = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(help="service_tier of A, then of B; without --a and --b, default and ultrafast."),
    ] = None,
    a: Annotated[
        list[str] | None,
        typer.Option("--a", metavar="KEY=VALUE", help="Only in A: url, model, tier, key-env or env.NAME."),
    ] = None,
    b: Annotated[list[str] | None, typer.Option("--b", metavar="KEY=VALUE", help="Only in B.")] = None,
    api_key_env: KeyEnv = DEFAULT_KEY_ENV,
    price_input: PriceInput = None,
    price_output: PriceOutput = None,
    hour_value: Hour = None,
    margin: Annotated[float, typer.Option(min=0.1, max=99, help="Points by which B may be worse at most.")] = 2.0,
    aa_share: Annotated[float, typer.Option(min=0, max=1, help="A/A pairs for each A/B pair.")] = 0.2,
    warmups: Annotated[int, typer.Option(min=0, help="Pairs that are run first and dropped.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the order within pairs, and of what the runs get.")] = 1,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which a run is stopped.")] = 600.0,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Pairs under way at once.")] = 1,
    journal: Annotated[
        Path, typer.Option(metavar="FILE", help="Grows with each pair; the same command goes on where it ended.")
    ] = Path("ab.jsonl"),
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Run a workflow in pairs under configurations A and B.

    The workflow finds its endpoint in OPENAI_BASE_URL (ANTHROPIC_BASE_URL), and its task in ULTRAFAST_TASK and, as a
    line of JSON, in its standard input. Ctrl-C ends the run with a report of what is there by then; the same command
    goes on. Ends with status 3 if B gets fewer tasks right by more than the margin.

    Example: ultrafast ab run --tier default --tier ultrafast --command "python solve.py" --tasks tasks.jsonl
    """
    import asyncio

    from ultrafast.bench.ab.run import design
    from ultrafast.bench.ab.run.journal import Writer
    from ultrafast.bench.ab.run.runner import Runner
    from ultrafast.bench.ab.run.setup import Setup, arm_setup, digest
    from ultrafast.cli.ab_show import pair_bar, show
    from ultrafast.cli.endpoint_options import prices_of

    workflow, name, work = _work(command, callable, requests, tasks, repeats)
    wanted = _wanted(url, model, tier or [], api_key_env, (a or [], b or []))
    arms, unit = asyncio.run(_arms(wanted, prices_of(price_input, price_output)))
    setup = Setup(
        workflow=name,
        arms={arm.name: arm_setup(arm) for arm in arms.values()},
        tasks=len(work),
        tasks_digest=digest(work),
        check=check,
        aa_share=aa_share,
        warmups=warmups,
        seed=seed,
        timeout_s=timeout,
        concurrency=concurrency,
        margin=margin / 100,
        unit=unit,
    )
    writer = Writer(journal, setup)
    plans = design.pairs(work, aa_share=aa_share, warmups=warmups, seed=seed)
    interrupted = False
    try:
        with pair_bar(writer.done.values(), len(plans)) as on_pair:
            runner = Runner(workflow, arms, check=check, timeout_s=timeout, concurrency=concurrency, on_pair=on_pair)
            asyncio.run(runner.run(plans, {task.id: task for task in work}, writer))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        writer.close()
    failed = show(journal, hour_value, json_file, html_file)
    if interrupted:
        raise typer.Exit(130)
    if failed:
        raise typer.Exit(QUALITY_FAILED)


@app.command()
def report(
    journal: Annotated[Path, typer.Argument(help="Of a run, finished or not.")],
    hour_value: Hour = None,
    exposure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write, as CSV, which run had which arm and tier."),
    ] = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Show what a journal tells by now; it may be looked at any time. Status 3 as in `run`.

    Example: ultrafast ab report ab.jsonl --hour-value 60 --html ab.html
    """
    from ultrafast.cli.ab_show import show, write_exposure

    if exposure is not None:
        write_exposure(journal, exposure)
    if show(journal, hour_value, json_file, html_file):
        raise typer.Exit(QUALITY_FAILED)


@app.command()
def plan(
    journal: Annotated[
        Path | None, typer.Argument(help="Of a first run: how much runs differ is taken from it.")
    ] = None,
    spread: Annotated[float, typer.Option(min=0.001, help="Standard deviation of log-ratios of time.")] = 0.3,
    disagree: Annotated[float, typer.Option(min=0.1, max=100, help="Tasks right in one arm only, in per cent.")] = 5.0,
    margin: Annotated[float, typer.Option(min=0.1, max=99, help="Points by which B may be worse at most.")] = 2.0,
    rate: Annotated[float, typer.Option(min=0.1, max=99.9, help="Users who come back (say), in per cent.")] = 40.0,
    change: Annotated[float, typer.Option(min=0.01, max=50, help="Change of that to be seen, in points.")] = 1.0,
) -> None:
    """Say how many tasks and users it takes, and what looking early costs.

    Example: ultrafast ab plan --spread 0.3 --disagree 5 --margin 2
    """
    from ultrafast.cli.ab_show import plan_text

    print(plan_text(journal, spread, disagree / 100, margin / 100, rate / 100, change / 100))


@app.command()
def assign(
    users: Annotated[Path, typer.Argument(help="One user a line.")],
    salt: Annotated[str, typer.Option(help="Names the experiment: another one mixes users anew.")],
) -> None:
    """Print, as CSV, which user gets which arm, for outcomes that show in weeks. A user keeps their arm.

    Example: ultrafast ab assign users.txt --salt autumn > arms.csv
    """
    from ultrafast.cli.ab_show import print_assignment

    print_assignment(users, salt)


@app.command()
def outcome(
    table: Annotated[Path, typer.Argument(help="CSV: a row a user, with a column that names them, and outcomes.")],
    unit: Annotated[str, typer.Option(help="The column that names users.")] = "user",
    salt: Annotated[
        str | None, typer.Option(help="Of `assign`, for a table without a column arm that says A or B.")
    ] = None,
    planned: Annotated[int, typer.Option(min=1, help="Users in each arm that there are to be in the end.")] = 10_000,
    json_file: JsonFile = None,
) -> None:
    """Compare outcomes that came in later, such as retention, between arms. May be looked at any time.

    Example: ultrafast ab outcome weeks.csv --salt autumn --planned 38000
    """
    from ultrafast.cli.ab_show import show_outcomes

    show_outcomes(table, unit, salt, planned, json_file)


def _work(
    command: str | None, function: str | None, requests: Path | None, tasks: Path | None, repeats: int
) -> tuple[Workflow, str, list[Task]]:
    """The workflow, what reports call it, and its tasks."""
    from ultrafast.bench.ab.run import inputs
    from ultrafast.bench.ab.run.process import Command, Function
    from ultrafast.bench.ab.run.replay import replay

    if sum(one is not None for one in (command, function, requests)) != 1:
        raise ConfigError("say what to run with one of --command, --callable and --requests")
    if requests is not None:
        if tasks is not None:
            raise ConfigError("--requests are the tasks: leave out --tasks")
        return replay, f"requests of {requests.name}", inputs.read_requests(requests)
    work = inputs.repeats(repeats) if tasks is None else inputs.read_tasks(tasks)
    if function is not None:
        return Function(function), function, work
    assert command is not None
    return Command(command), command, work


async def _arms(wanted: tuple[Wanted, Wanted], prices: Sequence[Price]) -> tuple[dict[str, Arm], str]:
    """The arms by name, and the unit of their prices."""
    from ultrafast.bench.ab.arms import arm_of, shared_prices
    from ultrafast.bench.ab.run.setup import RELATIVE
    from ultrafast.cli.endpoint_options import key_from

    if len(prices) > 2:
        raise ConfigError(f"{len(prices)} prices for two arms: give one for the tier default, or one an arm")
    given: list[Price | None] = [None, None] if not prices else [prices[0], prices[-1]]
    found = [
        await arm_of(name, arm, api_key=key_from(arm.key_env), price=price, is_base=len(prices) == 1)
        for name, arm, price in zip("AB", wanted, given, strict=True)
    ]
    (a, unit_a), (b, unit_b) = found
    a, b = shared_prices(a, b)
    return {"A": a, "B": b}, RELATIVE if RELATIVE in (unit_a, unit_b) else "$"


def _wanted(
    url: str, model: str | None, tiers: Sequence[str], key_env: str, settings: tuple[Sequence[str], Sequence[str]]
) -> tuple[Wanted, Wanted]:
    """What the options say of either arm."""
    from dataclasses import replace

    from ultrafast.bench.ab.arms import Wanted, changed
    from ultrafast.cli.endpoint_options import base_url_of

    if len(tiers) not in (0, 2):
        raise ConfigError(f"{len(tiers)} tiers for two arms: give --tier twice, or --a tier=… and --b tier=…")
    unsaid = (None, None) if any(settings) else ("default", "ultrafast")
    of_a, of_b = (
        changed(Wanted(url, model, tier, key_env), said, f"--{name}")
        for name, tier, said in zip("ab", tiers or unsaid, settings, strict=True)
    )
    if of_a == of_b:
        raise ConfigError("A and B are the same: let them differ in --tier, --a or --b")
    return replace(of_a, url=base_url_of(of_a.url)), replace(of_b, url=base_url_of(of_b.url))
