"""Who sends partial sums to whom along a line of PEs, until one has the sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from ultrafast.wafer.cost.mesh import groups

Tree = Sequence[int]
"""Of each PE of a line, to which one it sends its sum; the root's is its own."""


def two_level(side: int) -> Tree:
    """Groups of neighbours sum up towards their middles from both ends, then the middles do (WaferLLM's K-tree, K = 2).

    The number of groups is that of the cost model, their sizes differ by one at most.
    """
    count = groups(side)
    starts = [side * group // count for group in range(count + 1)]
    middles = [(start + end) // 2 for start, end in pairwise(starts)]
    parents = list(range(side))
    for (start, end), middle in zip(pairwise(starts), middles, strict=True):
        parents[start:end] = [_towards(one, middle) for one in range(start, end)]
    for group, middle in enumerate(middles):
        parents[middle] = middles[_towards(group, count // 2)]
    return parents


def chain(side: int) -> Tree:
    """From one end to the other: the vendor's own GEMV, by WaferLLM."""
    return [max(0, one - 1) for one in range(side)]


TREES: Mapping[str, Callable[[int], Tree]] = {"tree": two_level, "chain": chain}


def ring(side: int) -> list[int]:
    """PEs of a line in the order of a ring, whose neighbours are two hops apart at most: 0, 2, 4, …, 5, 3, 1."""
    return [*range(0, side, 2), *reversed(range(1, side, 2))]


def _towards(one: int, middle: int) -> int:
    return one + (one < middle) - (one > middle)
