"""Requests that arrive at a service: made up at random, or read from a trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ultrafast.errors import ConfigError
from ultrafast.traces import read_trace

_MOST_TOKENS = 1 << 24


@dataclass(frozen=True)
class Workload:
    """Requests in the order of their arrival; arrays of one length.

    Attributes:
        arrivals_s: seconds from the start, never falling.
        prompts, outputs: tokens; an output has at least one.
        tiers: index of each request's tier.
    """

    arrivals_s: npt.NDArray[np.float64]
    prompts: npt.NDArray[np.int64]
    outputs: npt.NDArray[np.int64]
    tiers: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arrivals_s)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long prompts or outputs are: log-normal around a median, as those of published traces roughly are.

    Attributes:
        sigma: standard deviation of the logarithm; 0: all have the median.
    """

    median: float
    sigma: float = 0.0

    def draw(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        """So many lengths, whole and at least 1."""
        drawn = self.median * np.exp(self.sigma * rng.standard_normal(count)) if self.sigma else self.median
        return np.broadcast_to(np.clip(np.rint(drawn), 1, _MOST_TOKENS).astype(np.int64), count).copy()


def poisson(
    rate: float, count: int, prompts: Lengths, outputs: Lengths, shares: Sequence[float], *, seed: int
) -> Workload:
    """``count`` requests at ``rate`` a second on average, each of a tier with the chance that ``shares`` give.

    Raises:
        ConfigError: an argument is impossible.
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise ConfigError(f"a rate of {rate:g} requests a second is none")
    if count < 1:
        raise ConfigError(f"{count} requests are too few to simulate")
    total = sum(shares)
    if total <= 0 or min(shares) < 0:
        raise ConfigError("the shares of the tiers must be positive numbers")
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate, count))
    tiers = rng.choice(len(shares), count, p=np.array(shares) / total)
    return Workload(arrivals, prompts.draw(rng, count), outputs.draw(rng, count), tiers)


def from_trace(path: Path, shares: Sequence[float], *, scale: float = 1.0, seed: int) -> Workload:
    """Requests of a trace that `ultrafast.traces` reads.

    Args:
        scale: times between arrivals are multiplied with it.

    Raises:
        ConfigError: what `read_trace` raises.
    """
    calls = read_trace(path).calls
    rows = np.array([(call.start_s * scale, call.prompt_tokens, call.output_tokens) for call in calls])
    tiers = np.random.default_rng(seed).choice(len(shares), len(calls), p=np.array(shares) / sum(shares))
    prompts, outputs = (np.maximum(1, column).astype(np.int64) for column in rows.T[1:])
    return Workload(rows[:, 0], prompts, outputs, tiers)
