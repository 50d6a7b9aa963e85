"""When calls are meant to start, and in which order cells are measured."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ultrafast.bench.load.arrivals import ClosedLoop, Load, OpenLoop, Replay
from ultrafast.bench.load.plan import Cell, Segment, cells, segments, wanted
from ultrafast.errors import ConfigError
from ultrafast.traces import Trace, TraceCall

TRACE = Trace("t.csv", "azure", [TraceCall(0.0, 10, 1), TraceCall(0.5, 20, 2), TraceCall(2.0, 30, 3, (7, 8))])


def test_poisson_arrivals_are_exponential_and_repeatable() -> None:
    load = OpenLoop(20.0)
    starts = np.array(load.starts(4000, seed=1))
    gaps = np.diff(starts, prepend=0.0)
    assert gaps.min() > 0
    assert gaps.mean() == pytest.approx(1 / 20, rel=0.05)
    assert gaps.std() == pytest.approx(1 / 20, rel=0.1)  # of an exponential: as the mean
    assert np.exp(-1) == pytest.approx((gaps > 1 / 20).mean(), abs=0.03)
    assert load.starts(50, 1) == load.starts(50, 1) != load.starts(50, 2)


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert OpenLoop(4.0, "constant").starts(4, seed=9) == [0.0, 0.25, 0.5, 0.75]


def test_a_trace_keeps_its_gaps_in_another_time() -> None:
    assert Replay(TRACE).starts(9, 0) == [0.0, 0.5, 2.0]
    assert Replay(TRACE, time_scale=0.5).starts(2, 0) == [0.0, 0.25]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ClosedLoop(0),
        lambda: ClosedLoop(1, -1.0),
        lambda: OpenLoop(0.0),
        lambda: OpenLoop(float("inf")),
        lambda: OpenLoop(1.0, in_flight_limit=0),
        lambda: Replay(TRACE, time_scale=0.0),
    ],
)
def test_no_load_is_an_error(make: object) -> None:
    with pytest.raises(ConfigError):
        make()  # type: ignore[operator]


def test_every_round_measures_every_cell_in_a_new_order() -> None:
    grid = cells(["a", "b", "c"], [8, 16], [4], [ClosedLoop(1)])
    plan = segments(grid, calls=20, duration_s=None, seed=3)
    rounds = [[segment.cell for segment in plan if segment.round == turn] for turn in range(5)]
    assert all(sorted(order) == list(range(6)) for order in rounds)
    assert len({tuple(order) for order in rounds}) > 1
    calls = Counter[int]()
    for segment in plan:
        calls[segment.cell] += segment.calls
    assert set(calls.values()) == {20}
    numbers = [segment.first_number + index for segment in plan for index in range(segment.calls)]
    assert len(set(numbers)) == 120


@pytest.mark.parametrize(
    ("load", "calls", "rounds"),
    [
        (ClosedLoop(1), 20, 5),
        (ClosedLoop(4), 20, 1),
        (ClosedLoop(4), 25, 2),
        (OpenLoop(5.0), 1000, 1),
        (Replay(TRACE), 3, 1),
    ],
)
def test_a_segment_has_thrice_the_calls_in_flight(load: Load, calls: int, rounds: int) -> None:
    assert len(segments([Cell(None, 1, 1, load)], calls=calls, duration_s=None, seed=0)) == rounds


def test_open_loops_share_the_time_in_long_pieces() -> None:
    grid = cells(["a", "b"], [8], [4], [OpenLoop(5.0)])
    assert len(segments(grid, calls=350, duration_s=None, seed=0)) == 2 * 3


def test_a_run_without_end_is_an_error() -> None:
    with pytest.raises(ConfigError, match="needs an end"):
        segments([Cell(None, 1, 1, ClosedLoop(1))], calls=None, duration_s=None, seed=0)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("load", [ClosedLoop(5), OpenLoop(100.0), Replay(TRACE)])
def test_workers_share_the_calls(load: Load, workers: int) -> None:
    segment = Segment(0, 0, 3, None, 100)
    cell = Cell(None, 10, 5, load)
    parts = [list(wanted(segment, cell, 0, worker=worker, workers=workers)) for worker in range(workers)]
    assert sorted(want.number for part in parts for want in part) == [100, 101, 102]


def test_a_time_ends_an_open_loop() -> None:
    segment = Segment(0, 0, 1_000_000, 2.0, 0)
    starts = [want.start_s for want in wanted(segment, Cell(None, 1, 1, OpenLoop(50.0)), 5)]
    assert all(start is not None and start <= 2.0 for start in starts)
    assert 60 < len(starts) < 140


def test_calls_of_a_trace_have_its_lengths() -> None:
    last = list(wanted(Segment(0, 0, 9, None, 0), Cell(None, None, None, Replay(TRACE)), 0))[-1]
    assert (last.prompt_tokens, last.output_tokens, last.blocks, last.start_s) == (30, 3, (7, 8), 2.0)
