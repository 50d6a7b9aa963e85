"""A number and how sure it is."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval, at 95 % confidence unless said otherwise.

    Attributes:
        value: ``nan`` without samples, ``inf`` where it is calls that never ended.
        low, high: infinite where the samples are too few to bound it on that side.
        n: samples that it rests on.
    """

    value: float
    low: float
    high: float
    n: int

    @property
    def is_bounded(self) -> bool:
        """Whether the samples bound it on both sides."""
        return math.isfinite(self.low) and math.isfinite(self.high)
