"""`ultrafast verify`: is the fast tier the same model?"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ultrafast.cli.endpoint_options import (
    DEFAULT_BASE_URL,
    DEFAULT_KEY_ENV,
    ApiOption,
    AskedModel,
    BaseUrl,
    KeyEnv,
    Tiers,
    endpoints_of,
    found_at,
)
from ultrafast.errors import ConfigError

if TYPE_CHECKING:
    from ultrafast.bench.client.endpoint import Endpoint
    from ultrafast.bench.verify.arms import Progress
    from ultrafast.bench.verify.ladder import Plan
    from ultrafast.bench.verify.verdict import Level

app = typer.Typer(rich_markup_mode=None)

LocalModel = Annotated[
    str | None,
    typer.Option("--local", metavar="MODEL", help="Verify the engine on this machine instead, with this model."),
]
Points = Annotated[float, typer.Option("--margin", min=0.1, max=50, help="Points by which an arm may be behind.")]


@dataclass(frozen=True, slots=True)
class _Files:
    json: Path | None
    html: Path | None
    calls: Path | None = None

    def check(self) -> None:
        """Before a long run, rather than after it.

        Raises:
            ConfigError: one cannot be written.
        """
        for file in filter(None, (self.json, self.html, self.calls)):
            if file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
                raise ConfigError(f"{file}: cannot be written")


@app.callback(invoke_without_command=True)
def verify(
    context: typer.Context,
    local: LocalModel = None,
    url: BaseUrl = DEFAULT_BASE_URL,
    model: AskedModel = None,
    tier: Tiers = None,
    api: ApiOption = "chat",
    api_key_env: KeyEnv = DEFAULT_KEY_ENV,
    against_url: Annotated[str | None, typer.Option(help="Address of the second arm, where it is another.")] = None,
    against_model: Annotated[str | None, typer.Option(help="Model of the second arm, where it is another.")] = None,
    against_tier: Annotated[str | None, typer.Option(help="service_tier of the second arm.")] = None,
    against_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the second arm's API key.")
    ] = None,
    prompts: Annotated[
        int | None, typer.Option(min=2, help="Prompts for greedy and sampled texts; default: 40, local: 20.")
    ] = None,
    prompts_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Prompts of your own, one a line, in place of ours.")
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="Sampled texts for each prompt and arm; 0 leaves them out.")] = 24,
    tool_requests: Annotated[int, typer.Option(min=0, help="Requests with tools; 0 leaves them out.")] = 240,
    questions: Annotated[int, typer.Option(min=0, help="Sums to solve; 0 leaves them out.")] = 240,
    questions_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON lines with question and answer, asked in place of sums."),
    ] = None,
    pairs: Annotated[int, typer.Option(min=0, help="Pairs of calls to compare speeds; 0 leaves them out.")] = 60,
    load: Annotated[
        int, typer.Option(min=0, max=256, help="Streams that keep the first arm busy while speeds are compared.")
    ] = 0,
    promised_speedup: Annotated[
        float | None, typer.Option(min=1.05, help="How many times as fast the second arm is said to write, always.")
    ] = None,
    margin: Points = 2.0,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Calls in flight, over both arms.")] = 4,
    max_tokens: Annotated[int, typer.Option(min=4, help="Of greedy answers.")] = 48,
    seed: Annotated[int, typer.Option(help="Of what is drawn and in which order it is asked.")] = 0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which a call has failed.")] = 600.0,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="With --local: the most to use.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write all figures to this file.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write the report as a page.")
    ] = None,
    calls_file: Annotated[
        Path | None, typer.Option("--calls", metavar="FILE", help="Also log every call, as JSON lines.")
    ] = None,
) -> None:
    """Find out whether two tiers, or two endpoints, are the same model, and whether a tier is what it says.

    A ladder of tests, each against a margin that is fixed beforehand; the first arm, asked twice, is the floor. Exit
    codes: 0 PASS, 3 FAIL (a difference is shown, or a tier is not what it says), 4 UNDERPOWERED (neither is shown: ask
    more, see `ultrafast verify plan`); 1, 2 and 130 as ever: an error, wrong usage, interrupted.

    Example: ultrafast verify --tier default --tier ultrafast --load 8 --html verify.html
    """
    if context.invoked_subcommand is not None:
        return
    from ultrafast.bench.verify.ladder import Plan
    from ultrafast.bench.verify.verdict import Margins

    files = _Files(json_file, html_file, calls_file)
    files.check()
    margins = Margins(points=margin)
    texts = _prompts(prompts_file, prompts or (20 if local else 40), seed)
    if local is not None:
        _local(local, texts, max_tokens, threads, margins, files)
        return
    from ultrafast.bench.verify.answers import questions_of, sums
    from ultrafast.bench.verify.tool_asks import tool_asks

    plan = Plan(
        greedy_prompts=texts,
        sample_prompts=texts if samples >= 2 else [],
        tool_requests=[] if api == "completions" else tool_asks(tool_requests, seed),
        questions=questions_of(questions_file) if questions_file else sums(questions, seed),
        speed_prompts=texts if pairs else [],
        greedy_tokens=max_tokens,
        samples=samples,
        speed_pairs=pairs,
        load=load,
        promised=promised_speedup,
        margins=margins,
    )
    second = (against_url, against_model, against_tier, against_key_env)
    ends = asyncio.run(_ends(url, model, tier or [], api, api_key_env, second))
    _remote(ends, plan, concurrency, seed, timeout, files)


@app.command()
def plan(
    power: Annotated[float, typer.Option(min=0.5, max=0.999, help="Probability with which equal arms pass.")] = 0.9,
    margin: Points = 2.0,
    disagree: Annotated[
        float, typer.Option(min=0, max=100, help="Per cent of questions and requests on which equal arms differ.")
    ] = 2.0,
    floor: Annotated[
        float, typer.Option(min=0, max=50, help="Per cent of tokens at which greedy answers of one arm differ.")
    ] = 0.2,
    spread: Annotated[
        float, typer.Option(min=0.1, max=200, help="Per cent by which speeds vary from call to call.")
    ] = 20,
) -> None:
    """Say how much must be asked for a wanted power.

    Example: ultrafast verify plan --power 0.9 --margin 2 --disagree 5
    """
    from ultrafast.bench.verify.plan import needed
    from ultrafast.bench.verify.verdict import Margins

    rows = needed(
        Margins(points=margin),
        power=power,
        discordant=disagree / 100,
        floor=floor / 100,
        spread=spread / 100,
        greedy_tokens=48,
    )
    for row in rows:
        print(f"{row.level:24} {row.count:7,} {row.unit:14} {row.calls:7,} calls   {row.why}")
    print(f"{'together':24} {'':22} {sum(row.calls for row in rows):7,} calls")


def _prompts(path: Path | None, count: int, seed: int) -> list[str]:
    from ultrafast.bench.verify.prompts import prompts, prompts_of

    return prompts(count, seed) if path is None else prompts_of(path, count)


async def _ends(
    url: str,
    model: str | None,
    tiers: list[str],
    api: Any,
    key_env: str,
    second: tuple[str | None, str | None, str | None, str | None],
) -> tuple[Endpoint, Endpoint]:
    """The endpoints of both arms."""
    other_url, other_model, other_tier, other_key = second
    is_other = any(second)
    if (is_other and len(tiers) > 1) or (not is_other and len(tiers) not in (1, 2)):
        raise ConfigError(
            "two arms are compared: give --tier twice, or once with --against-url, --against-model or --against-tier"
        )
    found = await found_at(url, model, key_env)
    ends = endpoints_of(found, url, tiers, api, key_env)
    if not is_other:
        plain = endpoints_of(found, url, None, api, key_env)
        first, last = (*plain, *ends)[-2:]
        return first, last
    key = other_key or key_env
    other_found = await found_at(other_url or url, other_model or (None if other_url else found.model), key)
    last = endpoints_of(other_found, other_url or url, [other_tier] if other_tier else None, api, key)[0]
    if last == ends[0]:
        raise ConfigError("both arms are the same: --against-… says nothing else than --url, --model and --tier")
    return ends[0], last


def _remote(
    ends: tuple[Endpoint, Endpoint], plan: Plan, concurrency: int, seed: int, timeout: float, files: _Files
) -> None:
    first, second = ends
    names = [end.name if first.base_url == second.base_url else f"{end.name} at {end.base_url}" for end in ends]
    levels: list[Level] = []
    interrupted = False
    try:
        with _bar() as progress:
            asyncio.run(_climb(ends, names, plan, concurrency, seed, timeout, files.calls, levels, progress))
    except KeyboardInterrupt:
        if not levels:
            raise
        interrupted = True
    setup = {
        "arms": [_described(end) for end in ends],
        "prompts": plan.greedy_prompts,
        "samples": plan.samples,
        "tool_requests": len(plan.tool_requests),
        "questions": len(plan.questions),
        "speed_pairs": plan.speed_pairs,
        "load": plan.load,
        "promised_speedup": plan.promised,
        "margins": plan.margins,
        "concurrency": concurrency,
        "seed": seed,
    }
    facts = {
        "first arm": names[0],
        "second arm": names[1],
        "concurrency": str(concurrency),
        "prompts": str(len(plan.greedy_prompts)),
        "margin": f"{plan.margins.points:g} points",
        "seed": str(seed),
    }
    _tell(levels, " and ".join(names), setup, facts, files, interrupted=interrupted)


async def _climb(
    ends: tuple[Endpoint, Endpoint],
    names: list[str],
    plan: Plan,
    concurrency: int,
    seed: int,
    timeout: float,
    calls_file: Path | None,
    levels: list[Level],
    progress: Progress,
) -> None:
    from contextlib import ExitStack

    from ultrafast.bench.client.client import Client
    from ultrafast.bench.client.clock import RunClock
    from ultrafast.bench.records import CallLog
    from ultrafast.bench.verify.arms import Arm, Arms
    from ultrafast.bench.verify.ladder import climb

    clock = RunClock()
    first, second = ends
    with ExitStack() as stack:
        log = stack.enter_context(CallLog(calls_file)) if calls_file else None
        async with Client(first, clock, timeout_s=timeout) as one, Client(second, clock, timeout_s=timeout) as other:
            arms = Arms(
                Arm(names[0], one, first.tier),
                Arm(names[1], other, second.tier),
                same_model=(first.base_url, first.model) == (second.base_url, second.model),
                concurrency=concurrency,
                seed=seed,
                progress=progress,
                on_call=(lambda level, call: log.append(call)) if log else (lambda level, call: None),
            )
            await climb(arms, plan, levels.append)


def _described(end: Endpoint) -> dict[str, Any]:
    """All but the key."""
    return {"url": end.base_url, "model": end.model, "tier": end.tier, "api": end.api}


def _local(model: str, texts: list[str], max_tokens: int, threads: int | None, margins: Any, files: _Files) -> None:
    from ultrafast.bench.verify.local import bit_identity, closeness
    from ultrafast.cli.progress import ensure_on_disk, step_bar
    from ultrafast.engine.topology import default_threads, detect

    ensure_on_disk(model)
    most = threads or len(default_threads(detect()))
    levels: list[Level] = []
    interrupted = False
    try:
        with step_bar() as progress:
            level, ids = bit_identity(model, texts, max_tokens=max_tokens, threads=most, progress=progress)
            levels.append(level)
            levels.append(closeness(model, ids, threads=most, margins=margins, progress=progress))
    except KeyboardInterrupt:
        if not levels:
            raise
        interrupted = True
    setup = {"local": model, "prompts": texts, "max_tokens": max_tokens, "threads": most, "margins": margins}
    facts = {"model": model, "prompts": str(len(texts)), "tokens": str(max_tokens), "threads": str(most)}
    _tell(levels, f"the ways to compute {model}", setup, facts, files, interrupted=interrupted)


def _tell(
    levels: list[Level],
    what: str,
    setup: dict[str, Any],
    facts: dict[str, str],
    files: _Files,
    *,
    interrupted: bool,
) -> None:
    from ultrafast.bench.records import document, write_document
    from ultrafast.bench.verify import report
    from ultrafast.bench.verify.verdict import overall

    print(report.text(levels, what))
    if files.json:
        write_document(files.json, document("verify", setup, report.results(levels) | {"complete": not interrupted}))
    if files.html:
        report.page(levels, what, facts).write(files.html)
    if interrupted:
        print("ultrafast: interrupted: levels that come later were not tested", file=sys.stderr)
        raise typer.Exit(130)
    raise typer.Exit(overall(levels).exit_code)


@contextmanager
def _bar() -> Iterator[Progress]:
    """One bar, that begins again with each level."""
    from ultrafast.cli.progress import call_bar

    with call_bar() as show:
        yield lambda title, done, total: show(title, done, total, 0, 0)
