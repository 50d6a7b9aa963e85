"""Many users on one placed model: a discrete-event simulation of requests, from their arrival to their last token.

A request takes a seat of its tier, or waits for one, or is turned away; its prompt is computed, in order, by one of the
prefill servers; then its tokens come from what all sequences share, at a pace that depends on how many they are. All
get their next token at the same pace, so one clock that counts tokens, and not seconds, tells when each is done: a
request costs a few steps of a heap, however long it is.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ultrafast.errors import ConfigError
from ultrafast.wafer.serving.workload import Workload

Overflow = Literal["queue", "reject", "next"]
"""What a tier does with a request that finds no seat: it waits, is turned away, or is served by the tier after it."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier; those before it in the list come first wherever something is waited for.

    Attributes:
        seats: requests that it serves at once.
        queue: requests that may wait for a seat.
    """

    name: str
    seats: int
    queue: int = 1 << 30
    overflow: Overflow = "queue"

    def __post_init__(self) -> None:
        if self.seats < 0 or self.queue < 0:
            raise ConfigError(f"{self.name}: seats and queue cannot be negative")


@dataclass(frozen=True, slots=True)
class Service:
    """What serves.

    Attributes:
        pace: seconds a token of each sequence, where so many are decoded at once; never falls with their number.
        prefill_servers: prompts that are computed at once.
        prefill_s: seconds of a prompt of so many tokens; takes an array.
    """

    pace: Callable[[int], float]
    tiers: Sequence[Tier]
    prefill_servers: int = 1
    prefill_s: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.floating[Any]]] = lambda tokens: np.zeros(len(tokens))

    def __post_init__(self) -> None:
        if self.prefill_servers < 1 or not self.tiers:
            raise ConfigError("a service needs at least one prefill server and one tier")


def pipeline(token_s: float, stage_s: float) -> Callable[[int], float]:
    """The pace of a pipeline: up to as many sequences as it has stages none notices the others, from there on they
    share what the slowest stage lets through.

    Args:
        token_s: seconds of one token through all of it.
        stage_s: seconds of one token in its slowest stage; 0: no number of sequences slows the others.

    Raises:
        ConfigError: these are no such times.
    """
    if not (token_s > 0 and stage_s >= 0 and math.isfinite(token_s + stage_s)):
        raise ConfigError("the time of a token must be positive, and that of a stage not negative")
    return lambda sequences: max(token_s, sequences * stage_s)


@dataclass(frozen=True)
class Result:
    """What became of every request; arrays in the order of arrival.

    Attributes:
        served: index of the tier that served it; -1: turned away.
        seated_s, decoding_s, done_s: when it got its seat, when its prompt was computed, when its last token came; nan
            for those turned away.
        busiest: sequences in the pipeline at once, at most.
    """

    workload: Workload
    service: Service
    served: npt.NDArray[np.int64]
    seated_s: npt.NDArray[np.float64]
    decoding_s: npt.NDArray[np.float64]
    done_s: npt.NDArray[np.float64]
    busiest: int

    @property
    def ttft_s(self) -> npt.NDArray[np.float64]:
        """From arrival to the first token, which is computed as if alone."""
        return self.decoding_s + self.service.pace(1) - self.workload.arrivals_s

    @property
    def speed(self) -> npt.NDArray[np.float64]:
        """Tokens a second of each, while they came."""
        return self.workload.outputs / (self.done_s - self.decoding_s)


def simulate(workload: Workload, service: Service) -> Result:
    """Run every request to its end."""
    return _Run(workload, service).run()


class _Run:
    def __init__(self, workload: Workload, service: Service) -> None:
        self._workload, self._service = workload, service
        count = len(workload)
        self._arrivals: list[float] = workload.arrivals_s.tolist()
        self._outputs: list[int] = workload.outputs.tolist()
        self._tiers: list[int] = workload.tiers.tolist()
        self._prefill: list[float] = np.asarray(service.prefill_s(workload.prompts), float).tolist()
        self._served = [-1] * count
        self._seated, self._decoding, self._done = ([math.nan] * count for _ in range(3))
        self._free = [tier.seats for tier in service.tiers]
        self._waiting: list[deque[int]] = [deque() for _ in service.tiers]
        self._servers = service.prefill_servers
        self._prompts: list[tuple[int, int]] = []  # a heap of (tier, request) that wait for a prefill server
        self._computing: list[tuple[float, int]] = []  # a heap of (when it is done, request)
        self._streams: list[tuple[float, int]] = []  # a heap of (what the clock of tokens says at its end, request)
        self._now = self._clock = 0.0
        self._busiest = 0

    def run(self) -> Result:
        arrivals, computing, streams = self._arrivals, self._computing, self._streams
        next_arrival, count = 0, len(arrivals)
        while next_arrival < count or computing or streams:
            arrival = arrivals[next_arrival] if next_arrival < count else math.inf
            prompt = computing[0][0] if computing else math.inf
            end = self._now + (streams[0][0] - self._clock) * self._pace() if streams else math.inf
            if end <= prompt and end <= arrival:
                self._advance(end)
                self._clock = streams[0][0]  # exactly, whatever was rounded on the way
                self._finish(heapq.heappop(streams)[1])
            elif prompt <= arrival:
                self._advance(prompt)
                self._begin_stream(heapq.heappop(computing)[1])
            else:
                self._advance(arrival)
                self._arrive(next_arrival, self._tiers[next_arrival])
                next_arrival += 1
        seated, decoding, done = map(np.array, (self._seated, self._decoding, self._done))
        return Result(self._workload, self._service, np.array(self._served), seated, decoding, done, self._busiest)

    def _pace(self) -> float:
        """Seconds a token of each sequence."""
        return self._service.pace(len(self._streams))

    def _advance(self, to: float) -> None:
        if self._streams:
            self._clock += (to - self._now) / self._pace()
        self._now = to

    def _arrive(self, request: int, tier: int) -> None:
        policy = self._service.tiers[tier]
        if self._free[tier]:
            self._seat(request, tier)
        elif policy.overflow == "next" and tier + 1 < len(self._service.tiers):
            self._arrive(request, tier + 1)
        elif policy.overflow != "reject" and policy.seats and len(self._waiting[tier]) < policy.queue:
            self._waiting[tier].append(request)

    def _seat(self, request: int, tier: int) -> None:
        self._free[tier] -= 1
        self._served[request], self._seated[request] = tier, self._now
        heapq.heappush(self._prompts, (tier, request))
        self._start_prompts()

    def _start_prompts(self) -> None:
        while self._servers and self._prompts:
            _, request = heapq.heappop(self._prompts)
            self._servers -= 1
            heapq.heappush(self._computing, (self._now + self._prefill[request], request))

    def _begin_stream(self, request: int) -> None:
        self._servers += 1
        self._decoding[request] = self._now
        heapq.heappush(self._streams, (self._clock + self._outputs[request], request))
        self._busiest = max(self._busiest, len(self._streams))
        self._start_prompts()

    def _finish(self, request: int) -> None:
        self._done[request] = self._now
        tier = self._served[request]
        self._free[tier] += 1
        if self._waiting[tier]:
            self._seat(self._waiting[tier].popleft(), tier)
