"""What repeated measurements of one quantity gave."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Samples:
    """One value a round; at least one."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def share_of(self, limits: Samples) -> float:
        """Median of value / limit, round by round: both changed together with what else the machine did."""
        return statistics.median(value / limit for value, limit in zip(self.values, limits.values, strict=True))

    def to_dict(self) -> dict[str, object]:
        return {"median": self.median, "low": self.low, "high": self.high, "samples": list(self.values)}
