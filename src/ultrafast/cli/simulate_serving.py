"""`ultrafast simulate serving`: many users on a planned model, request by request."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from ultrafast.wafer.plan import Plan
    from ultrafast.wafer.serving.simulate import Service, Tier
    from ultrafast.wafer.serving.summary import Level, TierSummary
    from ultrafast.wafer.serving.workload import Workload

_SEED = 0


def serving(
    model: Annotated[str, typer.Argument(help="Model: a name of the catalogue, a GGUF file, or a config.json.")],
    device: Annotated[str, typer.Option(help="A name of the catalogue (ultrafast plan --list).")] = "wse-3",
    count: Annotated[int, typer.Option("--devices", help="How many; default: the fewest that hold it.")] = 0,
    precision: Annotated[str | None, typer.Option(help="Of the weights; default: the file's, else bf16.")] = None,
    context: Annotated[int, typer.Option(help="Positions that a sequence may have.")] = 8192,
    rate: Annotated[float, typer.Option(help="Requests a second, on average (Poisson).")] = 1.0,
    requests: Annotated[int, typer.Option(help="How many.")] = 100_000,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Requests of an Azure, BurstGPT or Mooncake trace instead.")
    ] = None,
    time_scale: Annotated[float, typer.Option(help="Stretches the times between the requests of a trace.")] = 1.0,
    prompt_tokens: Annotated[float, typer.Option(help="Median length of a prompt.")] = 1000,
    output_tokens: Annotated[float, typer.Option(help="Median length of an output.")] = 300,
    spread: Annotated[float, typer.Option(help="Standard deviation of the lengths' logarithms.")] = 0.8,
    seats: Annotated[int, typer.Option(help="Requests of the default tier at once; default: as many as fit.")] = 0,
    ultrafast_seats: Annotated[int, typer.Option(help="Preview seats, kept for the ultrafast tier.")] = 0,
    ultrafast_share: Annotated[float, typer.Option(help="Of the requests, how many ask for it.")] = 0.1,
    overflow: Annotated[
        Literal["queue", "reject", "next"], typer.Option(help="When its seats are taken: wait, 429, or default.")
    ] = "next",
    queue: Annotated[int, typer.Option(help="Requests of a tier that may wait.")] = 1_000,
    ttft: Annotated[float, typer.Option(help="Service level: seconds to the first token at most.")] = float("inf"),
    speed: Annotated[float, typer.Option(help="Service level: tokens a second at least.")] = 0.0,
    share: Annotated[float, typer.Option(help="Service level: share of the requests that get it.")] = 0.95,
    seed: Annotated[int, typer.Option(help="The same seed gives the same requests.")] = _SEED,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Time to first token and speed of many users, by tier, and the seats that a service level takes.

    Example: ultrafast simulate serving llama-3.1-70b --rate 2 --ultrafast-seats 8 --ttft 2 --speed 300
    """
    from ultrafast.wafer import catalog, plan
    from ultrafast.wafer.serving.simulate import simulate
    from ultrafast.wafer.serving.summary import Level, fewest_seats, summarize
    from ultrafast.wafer.serving.workload import Lengths, from_trace, poisson

    bits = catalog.precision(model, precision)
    made = plan.make(
        plan.Question(catalog.model(model), catalog.device(device), bits, context, min(1024, context), count=count)
    )
    shares = [ultrafast_share, 1 - ultrafast_share] if ultrafast_seats else [1.0]
    if trace is not None:
        workload = from_trace(trace, shares, scale=time_scale, seed=seed)
    else:
        lengths = Lengths(prompt_tokens, spread), Lengths(output_tokens, spread)
        workload = poisson(rate, requests, *lengths, shares, seed=seed)
    service = _service(made, seats, ultrafast_seats, overflow, queue)
    level = Level(ttft, speed, share)
    started = time.perf_counter()
    result = simulate(workload, service)
    seconds = time.perf_counter() - started
    rows = summarize(result, level)
    fewest = fewest_seats(workload, service, 0, level, most=made.most_users)
    busiest = result.busiest
    print(f"simulated {len(workload) / seconds:,.0f} requests a second, on one core", file=sys.stderr)
    if as_json:
        body = {"plan_token_s": made.token_s, "devices": made.count, "busiest": busiest, "fewest_seats": fewest}
        print(json.dumps(_finite(body | {"level": asdict(level), "tiers": [asdict(row) for row in rows]}), indent=1))
    else:
        print(_text(made, workload, busiest, rows, level, fewest))


def _service(made: Plan, seats: int, ultrafast_seats: int, overflow: str, queue: int) -> Service:
    from ultrafast.errors import ConfigError
    from ultrafast.wafer import plan
    from ultrafast.wafer.serving.simulate import Service, Tier

    seats = seats or made.most_users - ultrafast_seats
    if not 0 < seats + ultrafast_seats <= made.most_users:
        raise ConfigError(
            f"{seats} and {ultrafast_seats} seats: the caches of {made.most_users:,} sequences fit "
            f"{made.count} x {made.question.device.title}"
        )
    tiers: list[Tier] = [Tier("default", seats, queue)]
    if ultrafast_seats:
        tiers.insert(0, Tier("ultrafast", ultrafast_seats, queue, overflow))  # type: ignore[arg-type]
    prefill_s = plan.prefill_per_token_s(made)
    return Service(cache(plan.pace(made)), tiers, made.prompts_at_once, lambda tokens: tokens * prefill_s)


def _text(
    made: Plan, workload: Workload, busiest: int, rows: list[TierSummary], level: Level, fewest: int | None
) -> str:
    question = made.question
    lines = [
        f"{len(workload):,} requests for {question.shape.name} on {made.count} x {question.device.title}, "
        f"{workload.outputs.sum():,} output tokens; at most {busiest:,} at once",
        "",
        f"{'tier':12}{'asked':>10}{'served':>10}{'moved':>9}{'refused':>9}{'first token p50/p95/p99, s':>30}"
        f"{'tok/s p50/p5/p1':>22}{'level':>8}",
    ]
    for row in rows:
        first = " / ".join(f"{value:,.2f}" for value in row.ttft_s)
        speed = " / ".join(f"{value:,.0f}" for value in row.speed)
        kept = "–" if row.kept is None else f"{row.kept:.1%}"
        lines.append(
            f"{row.name:12}{row.asked:>10,}{row.served:>10,}{row.moved:>9,}{row.refused:>9,}{first:>30}{speed:>22}{kept:>8}"
        )
    wanted = f"{level.share:.0%} within {level.ttft_s:g} s at {level.speed:g} tokens/s or more"
    found = f"{fewest:,} seats" if fewest is not None else f"no number of seats up to {made.most_users:,}"
    lines += ["", f"{rows[0].name}: {wanted} takes {found}."]
    return "\n".join(lines)


def _finite(value: object) -> object:
    """JSON has no infinity and no nan: null."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value
