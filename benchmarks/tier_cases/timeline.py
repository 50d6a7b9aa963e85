"""Arithmetic on when text came."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple


class Chunk(NamedTuple):
    """Text, and the moment it came in seconds."""

    at: float
    text: str


Span = tuple[float, float]
"""From one moment to another."""


def gaps(chunks: Sequence[Chunk], within: Span = (-inf, inf), without: Sequence[Span] = ()) -> list[float]:
    """Seconds between neighbouring chunks, for every pause that touches ``within`` and nothing of ``without``."""
    pauses = pairwise(chunk.at for chunk in chunks)
    return [
        pause[1] - pause[0] for pause in pauses if touch(pause, within) and not any(touch(pause, w) for w in without)
    ]


def touch(one: Span, other: Span) -> bool:
    """Whether two spans have more than a moment in common."""
    return one[0] < other[1] and other[0] < one[1]


class Progress:
    """How many characters some streams together have brought, by time; in between, a straight line.

    Args:
        streams: the chunks of each; together at least two moments.
    """

    def __init__(self, streams: Iterable[Sequence[Chunk]]) -> None:
        self._moments: list[float] = []
        self._counts: list[float] = []
        count = 0
        for chunk in heapq.merge(*streams, key=lambda chunk: chunk.at):
            count += len(chunk.text)
            if self._moments and self._moments[-1] == chunk.at:
                self._counts[-1] = count
            else:
                self._moments.append(chunk.at)
                self._counts.append(count)

    @property
    def start(self) -> float:
        return self._moments[0]

    @property
    def end(self) -> float:
        return self._moments[-1]

    def at(self, moment: float) -> float:
        """Characters by then."""
        return _interpolate(self._moments, self._counts, moment)

    def when(self, count: float) -> float:
        """The moment of that many characters."""
        return _interpolate(self._counts, self._moments, count)


def _interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """``y`` at ``x`` by the line between the two nearest points; the first or the last ``y`` beyond them."""
    right = bisect_left(xs, x)
    if right == 0:
        return ys[0]
    if right == len(xs):
        return ys[-1]
    left = right - 1
    return ys[left] + (ys[right] - ys[left]) * (x - xs[left]) / (xs[right] - xs[left])


def pace(alone: Progress, beside: Progress, start: float, end: float, *, at_least_s: float = 1.0) -> float:
    """The speed of ``beside`` from ``start`` to ``end``, as a share of the speed of ``alone`` over the same text.

    Both must bring the same texts: a stream slows down as its context grows, so that only equal places compare.

    Args:
        at_least_s: how long a piece of ``alone`` to look at, around the same text, should that be shorter: text comes
            in bursts.
    """
    first, last = beside.at(start), beside.at(end)
    since, until = alone.when(first), alone.when(last)
    lack = max(0.0, at_least_s - (until - since))
    since, until = max(alone.start, since - lack / 2), min(alone.end, until + lack / 2)
    return (last - first) / (end - start) * (until - since) / (alone.at(until) - alone.at(since))
