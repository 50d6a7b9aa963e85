"""What is measured, what is asked of it, and the samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all values do not exceed (the nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


class Statistic(StrEnum):
    """Which number of the samples is compared with the target."""

    MEDIAN = "median"
    P95 = "p95"
    LARGEST = "largest"
    SUM = "sum"


_OF: dict[Statistic, Callable[[Sequence[float]], float]] = {
    Statistic.MEDIAN: statistics.median,
    Statistic.P95: lambda values: percentile(values, 0.95),
    Statistic.LARGEST: max,
    Statistic.SUM: sum,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A statistic of the samples, which is to be at least or at most ``limit``."""

    relation: str  # ">=" or "<="
    limit: float
    statistic: Statistic = Statistic.MEDIAN

    def met(self, values: Sequence[float]) -> bool:
        """Whether these samples are as asked."""
        value = _OF[self.statistic](values)
        return value >= self.limit if self.relation == ">=" else value <= self.limit


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity; its samples are in seconds, tokens per second, or without a unit.

    Attributes:
        key: its name in JSON.
        unit: what the table shows it in: a key of `report.UNITS`.
    """

    key: str
    title: str
    unit: str = ""
    target: Target | None = None


@dataclass
class Findings:
    """The samples of one case by figure, and what else is to be told of it."""

    figures: Sequence[Figure]
    samples: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    error: str | None = None  # what ended the case before its time

    def add(self, key: str, value: float) -> None:
        """A sample of the figure of that key."""
        assert any(figure.key == key for figure in self.figures), key
        self.samples.setdefault(key, []).append(value)

    def statistic(self, key: str, which: Statistic) -> float:
        """Of the samples so far, of which there must be one."""
        return _OF[which](self.samples[key])
