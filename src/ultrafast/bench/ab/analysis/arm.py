"""What the runs of one arm came to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ultrafast.bench.ab.analysis import money, time_split
from ultrafast.bench.ab.analysis.time_split import Split
from ultrafast.bench.ab.run.records import Arm, Run
from ultrafast.bench.client.call import Call
from ultrafast.bench.statistics import Estimate, median, proportion

_SAME_TIER = {"priority": "fast", "auto": "default", "scale": "default", "standard_only": "default"}
"""Words that ask for a tier, and the name that the answer may have for it."""


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """Totals over the runs of A/B pairs.

    Attributes:
        wall: the median of seconds, of runs that ended by themselves; a run stopped by the limit counts as `inf`.
        served: calls by the tier that served, ``?`` where the answer does not say.
        fallbacks: calls that another tier served than the one asked for.
        cost, cost_per_success: US dollars; ``nan`` where prices or tokens are unknown.
        first_token_s: the median wait for a first token.
    """

    name: str
    asked: str
    runs: int
    timeouts: int
    failures: int
    success: Estimate
    successes: int
    wall: Estimate
    split: Split
    calls: int
    failed_calls: int
    unstreamed_calls: int
    served: dict[str, int]
    fallbacks: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    calls_without_tokens: int
    output_speed: float
    first_token_s: float
    cost: float
    cost_per_success: float


def summarise(arm: Arm, runs: Sequence[Run]) -> ArmSummary:
    """Of the runs of one arm."""
    calls = [call for run in runs for call in run.calls]
    fine = [call for call in calls if call.is_ok]
    waits = [call.ttft_s for call in fine if call.ttft_s is not None]
    costs = [money.cost_of_run(arm, run) for run in runs]
    successes = sum(run.success for run in runs)
    return ArmSummary(
        name=arm.name,
        asked=arm.endpoint.name,
        runs=len(runs),
        timeouts=sum(run.ended == "timeout" for run in runs),
        failures=sum(run.ended == "failed" for run in runs),
        success=proportion(successes, len(runs)),
        successes=successes,
        wall=median([math.inf if run.ended == "timeout" else run.wall_s for run in runs if run.ended != "failed"]),
        split=time_split.total(runs),
        calls=len(calls),
        failed_calls=len(calls) - len(fine),
        unstreamed_calls=sum(call.first_token_s is None for call in fine),
        served=dict(Counter(call.tier_served or "?" for call in fine)),
        fallbacks=sum(_fell_back(call) for call in fine),
        prompt_tokens=sum(call.prompt_tokens or 0 for call in calls),
        cached_tokens=sum(call.cached_tokens or 0 for call in calls),
        output_tokens=sum(call.output_tokens or 0 for call in calls),
        calls_without_tokens=sum(call.output_tokens is None for call in fine),
        output_speed=time_split.output_speed(calls),
        first_token_s=median(waits).value,
        cost=math.fsum(costs) if costs else math.nan,
        cost_per_success=money.cost_per_success(costs, successes) if costs else math.nan,
    )


def _fell_back(call: Call) -> bool:
    asked, served = (_SAME_TIER.get(tier or "", tier) for tier in (call.tier_asked, call.tier_served))
    return asked is not None and served is not None and asked != served
