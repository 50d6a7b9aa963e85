"""What a simulation says about each tier, and how many seats a service level takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ultrafast.errors import ConfigError
from ultrafast.wafer.serving.simulate import Result, Service, simulate
from ultrafast.wafer.serving.workload import Workload

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Level:
    """What a request is promised, and how many of all must get it.

    Attributes:
        ttft_s: time to first token at most.
        speed: tokens a second at least.
        share: of the requests that asked for the tier; those turned away or moved to another tier got nothing of it.
    """

    ttft_s: float = float("inf")
    speed: float = 0.0
    share: float = 0.95

    def __post_init__(self) -> None:
        if not (0 < self.share <= 1 and self.ttft_s > 0 and self.speed >= 0):
            raise ConfigError("a service level is a time above 0, a speed of at least 0 and a share up to 1")


@dataclass(frozen=True, slots=True)
class TierSummary:
    """One tier.

    Attributes:
        asked, served, moved, refused: requests that asked for it; of these, served by it, by another, by none.
        ttft_s, speed: percentiles of those that it served, `PERCENTILES` of the time and of slowness: the speeds that
            50, 95 and 99 in 100 have at least; nan where it served none.
        kept: share of those that asked that got the level; None where none was asked about.
    """

    name: str
    asked: int
    served: int
    moved: int
    refused: int
    ttft_s: Sequence[float]
    speed: Sequence[float]
    kept: float | None


def summarize(result: Result, level: Level | None = None) -> list[TierSummary]:
    """All tiers, in their order."""
    ttft_s, speed = result.ttft_s, result.speed
    rows = []
    for index, tier in enumerate(result.service.tiers):
        asked, served = result.workload.tiers == index, result.served == index
        rows.append(
            TierSummary(
                tier.name,
                int(asked.sum()),
                int((asked & served).sum()),
                int((asked & (result.served >= 0) & ~served).sum()),
                int((asked & (result.served < 0)).sum()),
                _percentiles(ttft_s[served], PERCENTILES),
                _percentiles(speed[served], [100 - p for p in PERCENTILES]),
                None if level is None else _kept(result, index, level),
            )
        )
    return rows


def fewest_seats(workload: Workload, service: Service, tier: int, level: Level, *, most: int) -> int | None:
    """The fewest seats of a tier with which its requests get a level; None if not even ``most`` do.

    More seats let requests wait less, and, past the stages of the pipeline, let each go slower: so the range in which a
    level holds can be empty, and its lower end is what is looked for.
    """

    def kept(seats: int) -> float:
        tiers = [replace(one, seats=seats) if n == tier else one for n, one in enumerate(service.tiers)]
        return _kept(simulate(workload, replace(service, tiers=tiers)), tier, level)

    tried = sorted({1 << n for n in range(most.bit_length()) if 1 << n <= most} | {most})
    last_short = 0
    for seats in tried:
        if kept(seats) >= level.share:
            low, high = last_short + 1, seats
            while low < high:
                middle = (low + high) // 2
                low, high = (low, middle) if kept(middle) >= level.share else (middle + 1, high)
            return low
        last_short = seats
    return None


def _kept(result: Result, tier: int, level: Level) -> float:
    asked = result.workload.tiers == tier
    if not asked.any():
        return 1.0
    good = (result.served == tier) & (result.ttft_s <= level.ttft_s) & (result.speed >= level.speed)
    return float((asked & good).sum() / asked.sum())


def _percentiles(values: npt.NDArray[np.float64], wanted: Sequence[int]) -> list[float]:
    return [float("nan")] * len(wanted) if not len(values) else np.percentile(values, wanted).tolist()
