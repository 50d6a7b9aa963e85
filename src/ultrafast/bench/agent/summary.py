"""What the runs of one arm come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ultrafast.bench import statistics
from ultrafast.bench.agent.records import TaskRun
from ultrafast.bench.agent.split import OUTPUT, Part, states_times, timeline, totals
from ultrafast.bench.agent.ways import Arm
from ultrafast.bench.client.call import Call
from ultrafast.report.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Summary:
    """Times, tokens and costs are means of the tasks that came to their end, and ``None`` or ``nan`` without any.

    Attributes:
        failures: what ended the others.
        parts: seconds; together they are `wall`.
        num_steps: of all runs; `num_by_model` of them were done by the model itself.
        states_times: the server told its own times of every request, so that the network is known.
        num_in_one_piece: answers of several tokens that came all at once, from a server that does not state its times.
        first_token: median over requests, seconds from the intended start.
        output_speed: tokens a second of the parts that are model output.
        cached: share of prompt tokens that were in the server's cache.
        accepted: share of drafted tokens that were right.
        tiers_served: requests by the tier that served them.
        cost: US dollars.
    """

    arm: str
    num_runs: int
    num_complete: int
    failures: Sequence[str]
    wall: Estimate
    parts: dict[Part, float]
    num_steps: int
    num_by_model: int
    num_retries: int
    retry_s: float
    states_times: bool
    num_in_one_piece: int
    first_token: Estimate
    output_speed: float | None
    output_tokens: float | None
    prompt_tokens: float | None
    cached: float | None
    accepted: float | None
    tiers_served: dict[str, int]
    cost: float | None


def summarise(arm: Arm, runs: Sequence[TaskRun]) -> Summary:
    """Of all runs, those of this arm."""
    own = [run for run in runs if run.arm == arm.name]
    complete = [run for run in own if run.is_complete]
    calls = [call for run in complete for call in run.calls]
    sums = [totals(timeline(run)) for run in complete]
    prompt = _total([call.prompt_tokens for call in calls])
    wall = statistics.mean([run.wall_s for run in complete])
    costs = [run.cost(arm.endpoint.price) for run in complete] if arm.endpoint.price else []
    return Summary(
        arm=arm.name,
        num_runs=len(own),
        num_complete=len(complete),
        failures=[run.failure for run in own if run.failure is not None],
        wall=replace(wall, low=max(0.0, wall.low)) if wall.is_bounded else wall,  # Student's interval may fall below 0
        parts={part: _mean([seconds[part] for seconds in sums]) or 0.0 for part in Part},
        num_steps=sum(run.num_steps for run in own),
        num_by_model=sum(run.num_by_model for run in own),
        num_retries=sum(run.num_retries for run in own),
        retry_s=_mean([run.retry_s for run in complete]) or 0.0,
        states_times=bool(calls) and all(map(states_times, calls)),
        num_in_one_piece=sum(map(_is_in_one_piece, calls)),
        first_token=statistics.median([call.ttft_s for call in calls if call.ttft_s is not None]),
        output_speed=_ratio(_total([run.output_tokens for run in complete]), sum(output_s(run) for run in complete)),
        output_tokens=_ratio(_total([run.output_tokens for run in complete]), len(complete)),
        prompt_tokens=_ratio(prompt, len(complete)),
        cached=_ratio(_total([call.cached_tokens for call in calls]), prompt),
        accepted=_ratio(
            _total([call.server.accepted_tokens for call in calls]),
            _total([call.server.drafted_tokens for call in calls]),
        ),
        tiers_served=dict(Counter(call.tier_served or "not said" for run in own for call in run.calls)),
        cost=_mean(costs),
    )


def output_s(run: TaskRun) -> float:
    """Seconds in which the model wrote."""
    sums = totals(timeline(run))
    return sum(sums[part] for part in OUTPUT)


def _is_in_one_piece(call: Call) -> bool:
    return not states_times(call) and (call.output_tokens or 0) > 1 and call.first_token_s == call.last_token_s


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if values and len(known) == len(values) else None


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
