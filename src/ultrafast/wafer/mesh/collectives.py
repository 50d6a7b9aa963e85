"""Sums over a line of PEs that leave the result on each of them, as events."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from ultrafast.errors import ConfigError
from ultrafast.wafer.mesh.events import Fabric
from ultrafast.wafer.mesh.trees import TREES, Tree, ring, two_level

ALGORITHMS = (*TREES, "ring")


class Summed:
    """An all-reduce along a tree: sums go up to the root, and the result from there to both ends of the line.

    Call `ready` for each PE when its own partial sum is there.

    Args:
        line: PEs, each the neighbour of the next.
        words: of a message.

    Attributes:
        done: of each PE of the line, when it has the whole result.
        adds: (PE, where its message came from), both by place in the line, in the order in which they were added.
    """

    def __init__(self, fabric: Fabric, line: Sequence[int], tree: Tree, words: int) -> None:
        self.done = [0.0] * len(line)
        self.adds: list[tuple[int, int]] = []
        self._fabric, self._line, self._tree, self._words = fabric, line, tree, words
        self._missing = [1] * len(line)  # partial sums: a PE's own, and one from each that sends to it
        for place, parent in enumerate(tree):
            self._missing[parent] += parent != place

    def ready(self, place: int, time: float) -> None:
        """One more of a PE's partial sums is there."""
        self._missing[place] -= 1
        if self._missing[place]:
            return
        parent = self._tree[place]
        if parent == place:
            self._spread(place, time)
        else:
            self._fabric.send(
                _way(self._line, place, parent), time, self._words, partial(self._pass, self._line[parent], place)
            )

    def _pass(self, target: int, sender: int, pe: int, time: float) -> None:
        if pe == target:
            self._fabric.handle(pe, time, self._words, partial(self._added, sender))

    def _added(self, sender: int, time: float) -> None:
        parent = self._tree[sender]
        self.adds.append((parent, sender))
        self.ready(parent, time)

    def _spread(self, root: int, time: float) -> None:
        places = {pe: place for place, pe in enumerate(self._line)}

        def receive(pe: int, first_word: float) -> None:
            self.done[places[pe]] = first_word + self._words - 1

        receive(self._line[root], time)
        for end in (0, len(self._line) - 1):
            self._fabric.send(_way(self._line, root, end), time, self._words, receive)


class RingSummed:
    """The same by a ring: every PE's vector goes once around, and each adds what passes. `done` as of `Summed`."""

    def __init__(self, fabric: Fabric, line: Sequence[int], words: int) -> None:
        self.done = [0.0] * len(line)
        self._fabric, self._line, self._words = fabric, line, words
        self._order = ring(len(line))
        self._next = {place: self._order[(n + 1) % len(line)] for n, place in enumerate(self._order)}
        self._added = [0] * len(line)

    def ready(self, place: int, time: float) -> None:
        """A PE's own partial sum is there."""
        if len(self._line) == 1:
            self.done[place] = time + self._words - 1
        else:
            self._forward(place, len(self._line) - 1, time)

    def _forward(self, place: int, left: int, time: float) -> None:
        target = self._next[place]

        def passing(pe: int, then: float) -> None:
            if pe == self._line[target]:
                self._fabric.handle(pe, then, self._words, lambda end: self._receive(target, left - 1, end))

        self._fabric.send(_way(self._line, place, target), time, self._words, passing)

    def _receive(self, place: int, left: int, time: float) -> None:
        self._added[place] += 1
        if self._added[place] == len(self._line) - 1:
            self.done[place] = time + self._words - 1
        if left:
            self._forward(place, left, time)


def summed(fabric: Fabric, line: Sequence[int], words: int, algorithm: str = "tree") -> Summed | RingSummed:
    """An all-reduce by one of `ALGORITHMS`.

    Raises:
        ConfigError: there is no such algorithm.
    """
    if algorithm == "ring":
        return RingSummed(fabric, line, words)
    if algorithm not in TREES:
        raise ConfigError(f"there is no all-reduce {algorithm!r}; there are {', '.join(ALGORITHMS)}")
    return Summed(fabric, line, TREES[algorithm](len(line)), words)


@cache
def order_of_adds(side: int) -> tuple[tuple[int, int], ...]:
    """(PE, where what it adds comes from) of the two-level tree, as they follow each other if all begin at once."""
    fabric = Fabric(stage_cycles=1.0)
    one = Summed(fabric, range(side), two_level(side), words=1)
    for place in range(side):
        fabric.at(0.0, partial(one.ready, place))
    fabric.run()
    return tuple(one.adds)


def _way(line: Sequence[int], start: int, end: int) -> Sequence[int]:
    return line[start : end + 1] if end >= start else line[end : start + 1][::-1]
