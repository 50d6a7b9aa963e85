"""The event simulation: processing elements (PEs) on a mesh, a link each way between neighbours, a router at each PE.

- A link carries one word of 32 bits a cycle, and a router sends a word on in the cycle after it came (WaferLLM).
- Messages move as streams: a router sends on what has arrived, and what finds a link taken waits in the router before
  it (virtual cut-through). A PE's software that handles a message sends on its first word while the last still come.
- A PE does one thing at a time. Whoever asks first for a link or a PE has it first; of two that ask in the same cycle,
  the one that was caused first. Nothing is drawn by chance.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count

from ultrafast.wafer.cost.wafer import HOP_CYCLES

Action = Callable[[float], None]
"""What happens at a time, in cycles."""


class Fabric:
    """PEs, links and routers, and what happens on them, in order of time. A PE is named by any number.

    Args:
        stage_cycles: of a PE's software, to handle a message.
    """

    def __init__(self, stage_cycles: float) -> None:
        self.stage_cycles = stage_cycles
        self.num_events = 0
        self._events: list[tuple[float, int, Action]] = []
        self._tickets = count()
        self._link_free: dict[tuple[int, int], float] = defaultdict(float)
        self._pe_free: dict[int, float] = defaultdict(float)

    def at(self, time: float, action: Action) -> None:
        """Have something happen."""
        heapq.heappush(self._events, (time, next(self._tickets), action))

    def run(self) -> float:
        """All that happens, and what follows from it; returns the time of the last event."""
        time = 0.0
        while self._events:
            time, _, action = heapq.heappop(self._events)
            self.num_events += 1
            action(time)
        return time

    def compute(self, pe: int, time: float, cycles: float, done: Action) -> None:
        """Keep a PE busy from then on, or from when it is free."""
        end = max(time, self._pe_free[pe]) + cycles
        self._pe_free[pe] = end
        self.at(end, done)

    def handle(self, pe: int, time: float, words: int, done: Action) -> None:
        """A message whose first word is there goes through a PE's software; ``done`` when its first word has."""
        start = max(time, self._pe_free[pe])
        self._pe_free[pe] = start + self.stage_cycles + words - 1
        self.at(start + self.stage_cycles, done)

    def send(
        self, path: Sequence[int], time: float, words: int, passing: Callable[[int, float], None], at: int = 1
    ) -> None:
        """Send a message along neighbours.

        Args:
            path: PEs, the sender first.
            passing: called with each PE, as the first word comes to it.
            at: of the path, where it goes next.
        """
        if at == len(path):
            return
        here, there = path[at - 1], path[at]
        start = max(time, self._link_free[here, there])
        self._link_free[here, there] = start + words

        def arrive(then: float) -> None:
            passing(there, then)
            self.send(path, then, words, passing, at + 1)

        self.at(start + HOP_CYCLES, arrive)
