"""Shares compared: pairs of yes and no, bounds on how far one arm is behind, and how many pairs that takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import optimize, stats


@dataclass(frozen=True, slots=True)
class Pairs:
    """Items that both arms tried.

    Attributes:
        n: items.
        lost: first arm yes, second no.
        won: first arm no, second yes.
    """

    n: int
    lost: int
    won: int

    @classmethod
    def of(cls, first: Sequence[bool], second: Sequence[bool]) -> Pairs:
        """Of two columns, item by item."""
        both = list(zip(first, second, strict=True))
        return cls(len(both), sum(a and not b for a, b in both), sum(b and not a for a, b in both))

    @property
    def difference(self) -> float:
        """Share of the second arm minus that of the first."""
        return (self.won - self.lost) / self.n if self.n else math.nan

    @property
    def discordant(self) -> float:
        """Share of the items on which they differ."""
        return (self.won + self.lost) / self.n if self.n else math.nan

    def lower(self, confidence: float) -> float:
        """One-sided lower bound of `difference`: Tango's score bound (1998), which holds without any discordant pair,
        where it is ``-z² / (n + z²)``."""
        return -_upper(self.n, self.lost, self.won, confidence)

    def upper(self, confidence: float) -> float:
        """One-sided upper bound of `difference`."""
        return _upper(self.n, self.won, self.lost, confidence)

    def p_worse(self) -> float:
        """Exact McNemar test, one-sided: how probable so many losses among the discordant pairs are by chance."""
        return float(stats.binom.sf(self.lost - 1, self.lost + self.won, 0.5))

    def p_different(self) -> float:
        """The same, two-sided."""
        fewer = min(self.lost, self.won)
        return min(1.0, 2 * float(stats.binom.cdf(fewer, self.lost + self.won, 0.5)))


def pairs_needed(margin: float, discordant: float, *, power: float, alpha: float = 0.05) -> int:
    """Pairs for the one-sided bound of an equal arm to clear the margin: ``(z_alpha + z_power)² · d / m²``.

    Args:
        margin: as a share: 0.02 is two points.
        discordant: share of the pairs expected to differ; see `clean_pairs_needed` for none.
    """
    z = stats.norm.isf(alpha) + stats.norm.ppf(power)
    return math.ceil(z**2 * discordant / margin**2 - 1e-9)


def clean_pairs_needed(margin: float, *, alpha: float = 0.05) -> int:
    """Pairs without any that differ that clear the margin, ``z_alpha² · (1 - m) / m``: the fewest that can pass."""
    return math.ceil(float(stats.norm.isf(alpha)) ** 2 * (1 - margin) / margin)


def rate_bounds(events: int, exposure: float, confidence: float) -> tuple[float, float]:
    """One-sided exact bounds of events per unit, each at that confidence (Poisson: Garwood 1936)."""
    if exposure <= 0:
        return 0.0, math.inf
    low = float(stats.gamma.ppf(1 - confidence, events)) if events else 0.0
    return low / exposure, float(stats.gamma.ppf(confidence, events + 1)) / exposure


def excess_bounds(
    events: int, exposure: float, floor_events: int, floor_exposure: float, confidence: float
) -> tuple[float, float]:
    """One-sided bounds of a rate minus the floor's: square-and-add of the bounds of each (Zou and Donner 2008)."""
    if exposure <= 0 or floor_exposure <= 0:
        return -math.inf, math.inf
    rate, floor = events / exposure, floor_events / floor_exposure
    low, high = rate_bounds(events, exposure, confidence)
    floor_low, floor_high = rate_bounds(floor_events, floor_exposure, confidence)
    excess = rate - floor
    return excess - math.hypot(rate - low, floor_high - floor), excess + math.hypot(high - rate, floor - floor_low)


def _upper(n: int, won: int, lost: int, confidence: float) -> float:
    if n == 0:
        return 1.0
    z = float(stats.norm.ppf(confidence))

    def beyond(theta: float) -> float:
        """Positive once the score test rejects that the difference is as large as theta."""
        b = -won - lost + (2 * n - won + lost) * theta
        q = (math.sqrt(max(0.0, b * b + 8 * n * lost * theta * (1 - theta))) - b) / (4 * n)
        spread = math.sqrt(max(n * (2 * q + theta * (1 - theta)), 1e-300))
        return (n * theta - (won - lost)) / spread - z

    low, high = (won - lost) / n, 1 - 1e-12
    if low >= high or beyond(high) <= 0:
        return 1.0
    return float(optimize.brentq(beyond, max(low, -1 + 1e-12), high))
