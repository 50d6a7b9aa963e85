"""What a run does, in which order: cells, and the segments that they are measured in, in turns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, repeat
from random import Random

from ultrafast.bench.load.arrivals import ClosedLoop, Load, OpenLoop, Replay
from ultrafast.errors import ConfigError

MAX_ROUNDS = 5  # more make segments short, and their first and last calls run under less than the load
OPEN_AT_LEAST_S = 20.0  # of a segment of an open loop
ENDLESS = 1_000_000  # calls of a segment that only time ends


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination that is measured and reported by itself.

    Attributes:
        prompt_tokens, output_tokens: of each call; ``None``: as the trace has it.
    """

    tier: str | None
    prompt_tokens: int | None
    output_tokens: int | None
    load: Load

    @property
    def tier_name(self) -> str:
        return self.tier or "no tier asked"

    @property
    def lengths(self) -> str:
        """Of prompt and answer."""
        if self.prompt_tokens is None or self.output_tokens is None:
            return "lengths of the trace"
        return f"{self.prompt_tokens:,} in, {self.output_tokens:,} out"

    @property
    def name_beside_tier(self) -> str:
        return f"{self.lengths} · {self.load.name}"

    @property
    def name(self) -> str:
        return f"{self.tier_name} · {self.name_beside_tier}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One call to make: its number (unique in the run), its start in the segment (``None``: when there is room)."""

    number: int
    start_s: float | None
    prompt_tokens: int
    output_tokens: int
    blocks: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time in which one cell is measured, between others.

    Attributes:
        cell: its place among the cells.
        calls: how many to make, at most.
        duration_s: no call starts later than this; those under way are waited for.
        first_number: of its calls.
    """

    cell: int
    round: int
    calls: int
    duration_s: float | None
    first_number: int


def cells(
    tiers: Sequence[str | None],
    prompt_tokens: Sequence[int | None],
    output_tokens: Sequence[int | None],
    loads: Sequence[Load],
) -> list[Cell]:
    """All combinations."""
    return [
        Cell(tier, prompt, output, load)
        for prompt, output, load, tier in product(prompt_tokens, output_tokens, loads, tiers)
    ]


def segments(
    cells: Sequence[Cell], *, calls: int | None, duration_s: float | None, seed: int, rounds: int = MAX_ROUNDS
) -> list[Segment]:
    """Each round measures every cell, in a new order, so that what changes with time meets all of them alike.

    A cell with many calls in flight gets fewer rounds: each then has three times as many calls as are in flight, for
    at the ends of a segment the load is less. So do open loops: what would come after the end of a segment does not
    meet a server that is still stalled. A trace is replayed as one piece.

    Args:
        calls, duration_s: of each cell, over all rounds; at least one of them.
    """
    if calls is None and duration_s is None:
        raise ConfigError("a run needs an end: a number of calls, or a time")
    random, number, found = Random(seed), 0, []
    plans = [_rounds_of(cell, calls, rounds, is_alone=len(cells) == 1) for cell in cells]
    for turn in range(max(plans)):
        order = [place for place, count in enumerate(plans) if turn < count]
        random.shuffle(order)
        for place in order:
            count = plans[place]
            part = ENDLESS if calls is None else calls * (turn + 1) // count - calls * turn // count
            found.append(Segment(place, turn, part, duration_s and duration_s / count, number))
            number += part
    return found


def _rounds_of(cell: Cell, calls: int | None, rounds: int, *, is_alone: bool) -> int:
    load = cell.load
    if isinstance(load, Replay) or (is_alone and isinstance(load, OpenLoop)):
        return 1
    at_least = 3 * load.in_flight if isinstance(load, ClosedLoop) else math.ceil(load.rate * OPEN_AT_LEAST_S)
    return max(1, min(rounds, (calls or ENDLESS) // at_least))


def wanted(segment: Segment, cell: Cell, seed: int, *, worker: int = 0, workers: int = 1) -> Iterator[Wanted]:
    """The calls of a segment that one of several workers makes."""
    load = cell.load
    if isinstance(load, ClosedLoop):
        starts: Iterable[float | None] = repeat(None, segment.calls)
    else:
        starts = load.starts(_at_most(segment, load), seed + 7919 * segment.round)
    for index, start_s in enumerate(starts):
        if start_s is not None and segment.duration_s is not None and start_s > segment.duration_s:
            return
        if index % workers == worker:
            number = segment.first_number + index
            if isinstance(load, Replay):
                of = load.trace.calls[index]
                yield Wanted(number, start_s, of.prompt_tokens, of.output_tokens, of.blocks)
            else:
                yield Wanted(number, start_s, cell.prompt_tokens or 1, cell.output_tokens or 1)


def _at_most(segment: Segment, load: OpenLoop | Replay) -> int:
    """So many starts that those within the segment's time are among them."""
    if isinstance(load, Replay):
        return min(segment.calls, len(load.trace.calls))
    if segment.duration_s is None:
        return segment.calls
    expected = segment.duration_s * load.rate
    return min(segment.calls, math.ceil(expected + 6 * math.sqrt(expected) + 10))
