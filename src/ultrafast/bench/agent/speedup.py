"""How much faster one arm is than another, and how much of that its faster output explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ultrafast.bench import statistics
from ultrafast.bench.agent.records import TaskRun
from ultrafast.bench.agent.split import Part, timeline, totals
from ultrafast.bench.agent.summary import output_s
from ultrafast.report.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Speedup:
    """Pairs are the rounds that both arms completed.

    Attributes:
        observed: wall time of the base over that of the arm; geometric mean over pairs.
        share: of the base's wall time in model output.
        output: output speed of the arm over that of the base; ``None``: token counts are not known.
        predicted: `amdahl` of these two, pair by pair; geometric mean.
        limit: what no output speed gets beyond: `amdahl` of the share at infinite speed.
        saved: mean seconds saved a task, by part; negative: it took longer.
        more_tokens: output tokens of the arm over those of the base, less 1.
    """

    base: str
    arm: str
    observed: Estimate
    share: float
    output: float | None
    predicted: Estimate | None
    limit: float
    saved: dict[Part, float]
    more_tokens: float | None


def amdahl(share: float, speedup: float) -> float:
    """How much faster the whole gets when this share of its time is spent so many times faster (Amdahl 1967)."""
    rest = 1.0 - share + share / speedup
    return 1.0 / rest if rest > 0 else float("inf")


def compare(base: str, arm: str, runs: Sequence[TaskRun], *, seed: int = 0) -> Speedup | None:
    """``None``: no round was completed by both."""
    by_round = {(run.arm, run.round): run for run in runs if run.is_complete and run.wall_s > 0}
    rounds = [number for name, number in by_round if name == base and (arm, number) in by_round]
    pairs = [(by_round[base, number], by_round[arm, number]) for number in rounds]
    if not pairs:
        return None
    walls = [[run.wall_s for run in side] for side in zip(*pairs, strict=True)]
    shares = [output_s(slow) / slow.wall_s for slow, _ in pairs]
    ratios = [_output_ratio(slow, fast) for slow, fast in pairs]
    known = [ratio for ratio in ratios if ratio is not None]
    predictions = [amdahl(share, ratio) for share, ratio in zip(shares, ratios, strict=True) if ratio is not None]
    is_known = len(known) == len(pairs)
    sums = [[totals(timeline(run)) for run in side] for side in zip(*pairs, strict=True)]
    tokens = [[run.output_tokens for run in side] for side in zip(*pairs, strict=True)]
    return Speedup(
        base=base,
        arm=arm,
        observed=statistics.bootstrap(_ratio, *walls, seed=seed),
        share=float(np.mean(shares)),
        output=float(_geometric(known)) if is_known else None,
        predicted=statistics.bootstrap(_geometric, predictions, seed=seed) if is_known else None,
        limit=amdahl(float(np.mean(shares)), float("inf")),
        saved={part: float(np.mean([a[part] - b[part] for a, b in zip(*sums, strict=True)])) for part in Part},
        more_tokens=_more(*tokens),
    )


def _output_ratio(slow: TaskRun, fast: TaskRun) -> float | None:
    seconds = output_s(slow), output_s(fast)
    if not slow.output_tokens or not fast.output_tokens or not all(seconds):
        return None
    return (fast.output_tokens / seconds[1]) / (slow.output_tokens / seconds[0])


def _more(base: Sequence[int | None], arm: Sequence[int | None]) -> float | None:
    if None in base or None in arm or not sum(filter(None, base)):
        return None
    return sum(filter(None, arm)) / sum(filter(None, base)) - 1


def _geometric(values: Any) -> Any:
    return np.exp(np.log(values).mean(axis=-1))


def _ratio(slow: Any, fast: Any) -> Any:
    """The geometric mean: of few pairs, resampling a median could give only a handful of values."""
    return _geometric(slow / fast)
