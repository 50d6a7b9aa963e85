"""All that the pairs of a run tell, as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ultrafast.bench.ab.analysis import money
from ultrafast.bench.ab.analysis.arm import ArmSummary, summarise
from ultrafast.bench.ab.analysis.time_split import amdahl
from ultrafast.bench.ab.run.records import Arm, Pair, Run
from ultrafast.bench.ab.statistics import always_valid, speedup, success
from ultrafast.bench.ab.statistics.success import Success
from ultrafast.bench.statistics import Estimate, Floats, bootstrap, proportion

Finding = Literal["faster", "slower", "open"]


@dataclass(frozen=True, slots=True)
class Time:
    """B's speed-up: of pairs both of whose runs ended by themselves, right or wrong.

    Attributes:
        always: the typical speed-up's interval that holds at every look.
        finding: what the test that may be looked at any time says, at 5 %.
        found_after: pairs that it took; 0: not found.
        left_out: pairs with a run that failed or was stopped.
    """

    typical: Estimate
    overall: Estimate
    middle: Estimate
    always: tuple[float, float]
    finding: Finding
    found_after: int
    spread: float
    left_out: int


@dataclass(frozen=True, slots=True)
class Floor:
    """How much two runs differ that should not: A against A.

    Attributes:
        ratio: of the times of the run that a coin called first, and the other; 1 if all is well.
        spread: standard deviation of the logarithm.
        disagree: share of pairs of which one run was right and the other was not.
        finding: that of the same test as for B; anything but ``open`` says that the set-up favours one of two equals.
    """

    ratio: Estimate
    spread: float
    disagree: Estimate
    finding: Finding


@dataclass(frozen=True, slots=True)
class Money:
    """In `Analysis.unit`; ``nan`` throughout where prices or tokens are unknown.

    Attributes:
        extra: what a task costs more in B.
        saved_s: seconds that a task takes less in B.
        an_hour: the value of an hour of waiting from which on B pays.
    """

    extra: Estimate
    saved_s: Estimate
    an_hour: Estimate


@dataclass(frozen=True, slots=True)
class Reach:
    """What output speed can do for this workflow.

    Attributes:
        speed_ratio: B's output speed over A's.
        predicted: speed-up if nothing but that changed (Amdahl); to be held against `Time.overall`.
        bound: speed-up over A with output that takes no time at all.
        left: the same over B: what a yet faster tier can still give.
        tokens_ratio: B's output tokens over A's; 1 if both did the same.
    """

    speed_ratio: float
    predicted: float
    bound: float
    left: float
    tokens_ratio: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """Of one journal.

    Attributes:
        planned: A/B pairs that there were to be.
        unit: of money: ``$``, or a word.
        order: the second run's time over the first one's, in all pairs; 1 if the first leaves nothing behind.
    """

    pairs: int
    planned: int
    unit: str
    a: ArmSummary
    b: ArmSummary
    time: Time
    success: Success
    floor: Floor
    order: Estimate
    money: Money
    reach: Reach

    @property
    def is_complete(self) -> bool:
        return self.pairs >= self.planned


def analyse(
    pairs: Sequence[Pair], arms: Mapping[str, Arm], *, planned: int, margin: float, unit: str = "$", seed: int = 0
) -> Analysis:
    """
    Args:
        pairs: in order; warm-ups are left out here.
        planned: A/B pairs that the run was to have.
        unit: of the arms' prices.
        margin: how much worse B's share of successes may be.
    """
    compared = [pair for pair in pairs if pair.plan.kind == "ab"]
    same = [pair for pair in pairs if pair.plan.kind == "aa"]
    runs_a, runs_b = [pair.sides[0] for pair in compared], [pair.sides[1] for pair in compared]
    a, b = summarise(arms["A"], runs_a), summarise(arms["B"], runs_b)
    return Analysis(
        pairs=len(compared),
        planned=planned,
        unit=unit,
        a=a,
        b=b,
        time=_time(compared, seed),
        success=success.compare(
            [run.success for run in runs_a],
            [run.success for run in runs_b],
            margin=margin,
            complete=len(compared) >= planned,
        ),
        floor=_floor(same, seed),
        order=_order([*compared, *same], seed),
        money=_money(arms, compared, seed),
        reach=_reach(a, b),
    )


def finding_of(log_ratios: Floats) -> tuple[Finding, int]:
    """What the test that may be looked at any time says, and after how many pairs it did."""
    half = always_valid.ALPHA / 2
    words: tuple[tuple[Finding, Floats], ...] = (("faster", log_ratios), ("slower", -log_ratios))
    for word, ratios in words:
        after = int(always_valid.first_crossing(always_valid.sign_evidence(ratios), half)) if len(ratios) else 0
        if after:
            return word, after
    return "open", 0


def _ended(pairs: Sequence[Pair]) -> list[tuple[Run, Run]]:
    return [pair.sides for pair in pairs if all(run.ended == "done" for run in pair.runs)]


def _walls(sides: Sequence[tuple[Run, Run]]) -> tuple[list[float], list[float]]:
    return [a.wall_s for a, _ in sides], [b.wall_s for _, b in sides]


def _time(pairs: Sequence[Pair], seed: int) -> Time:
    a, b = _walls(_ended(pairs))
    ratios = speedup.log_ratios(a, b)
    low, high = always_valid.interval(ratios) if len(ratios) else (-math.inf, math.inf)
    finding, after = finding_of(ratios)
    return Time(
        typical=speedup.typical(a, b, seed=seed),
        overall=speedup.overall(a, b, seed=seed),
        middle=speedup.middle(a, b),
        always=(_exp(low), _exp(high)),
        finding=finding,
        found_after=after,
        spread=_spread(ratios),
        left_out=len(pairs) - len(a),
    )


def _floor(pairs: Sequence[Pair], seed: int) -> Floor:
    first, second = _walls(_ended(pairs))
    ratios = speedup.log_ratios(first, second)
    disagree = sum(pair.runs[0].success != pair.runs[1].success for pair in pairs)
    return Floor(
        speedup.typical(first, second, seed=seed), _spread(ratios), proportion(disagree, len(pairs)),
        finding_of(ratios)[0],
    )  # fmt: skip


def _order(pairs: Sequence[Pair], seed: int) -> Estimate:
    ended = [pair.runs for pair in pairs if all(run.ended == "done" for run in pair.runs)]
    first, second = _walls(ended)
    return speedup.typical(second, first, seed=seed)


def _money(arms: Mapping[str, Arm], pairs: Sequence[Pair], seed: int) -> Money:
    sides = _ended(pairs)
    extra = np.array([money.cost_of_run(arms["B"], b) - money.cost_of_run(arms["A"], a) for a, b in sides])
    saved = np.array([a.wall_s - b.wall_s for a, b in sides])

    def mean(values: Floats) -> Floats:
        return np.asarray(values.mean(axis=-1))

    unknown = Estimate(math.nan, math.nan, math.nan, len(sides))
    known = len(sides) > 0 and not np.isnan(extra).any()
    return Money(
        extra=bootstrap(mean, extra, seed=seed) if known else unknown,
        saved_s=bootstrap(mean, saved, seed=seed) if len(sides) else unknown,
        an_hour=money.break_even_of_pairs(extra, saved, seed=seed) if known else unknown,
    )


def _reach(a: ArmSummary, b: ArmSummary) -> Reach:
    ratio = b.output_speed / a.output_speed if a.output_speed > 0 else math.nan
    return Reach(
        speed_ratio=ratio,
        predicted=amdahl(a.split.output_share, ratio),
        bound=amdahl(a.split.output_share, math.inf),
        left=amdahl(b.split.output_share, math.inf),
        tokens_ratio=b.output_tokens / a.output_tokens if a.output_tokens else math.nan,
    )


def _spread(ratios: Floats) -> float:
    return float(ratios.std(ddof=1)) if len(ratios) > 1 else math.nan


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
