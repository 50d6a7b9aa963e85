"""Whether B gets as many tasks right as A, from tasks that both arms did.

"No significant difference" is no answer: B must be shown to be no worse than a margin that was fixed beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import brentq

from ultrafast.bench.ab.statistics.always_valid import mean_evidence
from ultrafast.bench.statistics import Estimate

Verdict = Literal["PASS", "FAIL", "UNDERPOWERED"]

MARGIN = 0.02
EARLY_ALPHA = 0.01  # risk of a false FAIL before the planned end, beside the 5 % at it


@dataclass(frozen=True, slots=True)
class Success:
    """Pairs by who was right, and what follows.

    Attributes:
        difference: B's share of successes less A's, with a 95 % interval (Tango's score interval for paired shares).
        p_value: of McNemar's exact test of "no difference".
        lower, upper: one-sided 95 % bounds of the difference.
        verdict: PASS: at the planned end, ``lower`` is above ``-margin``. FAIL: at the planned end, ``upper`` is below
            it, or before, a test that may be looked at any time says so at 1 %. A run ends early for failure only.
    """

    both: int
    only_a: int
    only_b: int
    neither: int
    difference: Estimate
    p_value: float
    lower: float
    upper: float
    margin: float
    verdict: Verdict

    @property
    def n(self) -> int:
        return self.both + self.only_a + self.only_b + self.neither


def compare(a: ArrayLike, b: ArrayLike, *, margin: float = MARGIN, complete: bool = True) -> Success:
    """Judges pairs of successes.

    Args:
        a, b: one truth value a pair, in the order in which the pairs were made.
        margin: how much worse B may be, as a share; above 0.
        complete: all pairs that were planned before the start are here.
    """
    right_a, right_b = np.asarray(a, dtype=bool), np.asarray(b, dtype=bool)
    n = len(right_a)
    only_a, only_b = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    both = int((right_a & right_b).sum())
    lower, upper = paired_bounds(only_a, only_b, n, 0.90)
    verdict: Verdict = "UNDERPOWERED"
    worse = right_a.astype(float) - right_b
    if complete and lower > -margin:
        verdict = "PASS"
    elif (complete and upper < -margin) or (n and mean_evidence(worse, margin).max() >= -math.log(EARLY_ALPHA)):
        verdict = "FAIL"
    value = (only_b - only_a) / n if n else math.nan
    return Success(
        both=both,
        only_a=only_a,
        only_b=only_b,
        neither=n - both - only_a - only_b,
        difference=Estimate(value, *paired_bounds(only_a, only_b, n, 0.95), n),
        p_value=float(stats.binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0,
        lower=lower,
        upper=upper,
        margin=margin,
        verdict=verdict,
    )


def paired_bounds(only_a: int, only_b: int, n: int, confidence: float) -> tuple[float, float]:
    """The interval for B's share less A's that Tango (1998) gets by inverting the score test; good for few pairs and
    for pairs that never disagree."""
    if n == 0:
        return -1.0, 1.0
    z = float(stats.norm.ppf((1 + confidence) / 2))
    edge, middle = 1 - 1e-12, (only_b - only_a) / n

    def end(side: float) -> float:
        far = -side * edge

        def gap(difference: float) -> float:
            return _score(difference, only_a, only_b, n) - side * z

        if (far - middle) * side >= 0 or gap(far) * side <= 0:
            return -side
        return float(brentq(gap, far, middle, xtol=1e-10))

    return end(1.0), end(-1.0)


def _score(difference: float, only_a: int, only_b: int, n: int) -> float:
    """Tango's statistic: standard normal if that is the true difference."""
    b = -only_a - only_b + (2 * n - only_b + only_a) * difference
    c = -only_a * difference * (1 - difference)
    share_a = (math.sqrt(max(b * b - 8 * n * c, 0.0)) - b) / (4 * n)  # likeliest share of "only A", given that
    variance = n * (2 * share_a + difference * (1 - difference))
    distance = only_b - only_a - n * difference
    return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance) if distance else 0.0
