"""When calls are meant to start: a fixed number in flight, or a schedule that does not wait for the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ultrafast.errors import ConfigError
from ultrafast.traces import Trace

Spread = Literal["poisson", "constant"]


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """So many calls in flight: each is followed by the next one, after `think_s`.

    The load falls as the server slows down: a stall delays the calls in flight, and keeps others from being asked.
    """

    in_flight: int
    think_s: float = 0.0

    def __post_init__(self) -> None:
        if self.in_flight < 1 or not 0 <= self.think_s < float("inf"):
            raise ConfigError(f"a closed loop of {self.in_flight} calls, {self.think_s} s apart, makes no load")

    @property
    def name(self) -> str:
        think = f", {self.think_s:g} s between" if self.think_s else ""
        return f"{self.in_flight} in flight{think}"

    @property
    def in_flight_limit(self) -> int:
        return self.in_flight


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """So many calls a second, whatever the server does.

    Args:
        spread: ``poisson``: as independent callers come; ``constant``: evenly spaced.
        in_flight_limit: calls at most in flight; others are sent late, which counts as latency.
    """

    rate: float
    spread: Spread = "poisson"
    in_flight_limit: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.rate < float("inf"):
            raise ConfigError(f"a rate of {self.rate} calls a second makes no load")
        if self.in_flight_limit is not None and self.in_flight_limit < 1:
            raise ConfigError(f"at most {self.in_flight_limit} calls in flight make no load")

    @property
    def name(self) -> str:
        limit = f", at most {self.in_flight_limit} in flight" if self.in_flight_limit else ""
        return f"{self.rate:g}/s {self.spread}{limit}"

    def starts(self, calls: int, seed: int) -> list[float]:
        """Intended starts in seconds, ascending; the same seed gives the same ones."""
        if self.spread == "constant":
            return [index / self.rate for index in range(calls)]
        gaps = np.random.default_rng(seed).exponential(1 / self.rate, calls)
        return [float(start) for start in np.cumsum(gaps)]


@dataclass(frozen=True, slots=True)
class Replay:
    """The starts and lengths of a trace, with its time stretched (`time_scale` above 1) or pressed together."""

    trace: Trace
    time_scale: float = 1.0
    in_flight_limit: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.time_scale < float("inf"):
            raise ConfigError(f"a time scale of {self.time_scale} leaves no time; 0.5 replays twice as fast")

    @property
    def name(self) -> str:
        scale = f", time × {self.time_scale:g}" if self.time_scale != 1 else ""
        limit = f", at most {self.in_flight_limit} in flight" if self.in_flight_limit else ""
        return f"trace {self.trace.name}{scale}{limit}"

    def starts(self, calls: int, seed: int) -> list[float]:
        """Intended starts in seconds, ascending; a trace has no chance in it."""
        return [call.start_s * self.time_scale for call in self.trace.calls[:calls]]


Load = ClosedLoop | OpenLoop | Replay
