"""How the two lanes share time: on a clock of our own."""

from __future__ import annotations

import pytest

from ultrafast.engine.lanes import LaneClock, Turn
from ultrafast.engine.native import Lane

BOTH = set(Lane)


def next_turn(
    clock: LaneClock, working: set[Lane] = BOTH, decoding: set[Lane] = BOTH, *, youngest_s: float = 1.0
) -> Turn:
    return clock.next_turn(working=working, decoding=decoding, youngest_s=youngest_s)


def simulate(share: float, step_s: float, overrun_s: float = 0.0, seconds: float = 60.0) -> tuple[float, float]:
    """Both lanes always have work: part of the time that the urgent one got, and the longest it was kept waiting."""
    clock = LaneClock(share)
    spent = {Lane.URGENT: 0.0, Lane.SHARED: 0.0}
    since_urgent = longest = 0.0
    while sum(spent.values()) < seconds:
        turn = next_turn(clock)
        took = turn.time_limit_s + overrun_s if turn.slice else max(step_s, turn.time_limit_s // step_s * step_s)
        clock.ran(turn, took)
        spent[turn.lane] += took
        since_urgent += took
        longest = max(longest, since_urgent)
        if turn.lane is Lane.URGENT:
            since_urgent = 0.0
    return spent[Lane.URGENT] / sum(spent.values()), longest


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("step_s", [0.001, 0.004, 0.02])
@pytest.mark.parametrize("overrun_s", [0.0, 0.002])
def test_each_lane_gets_its_part(share: float, step_s: float, overrun_s: float) -> None:
    assert simulate(share, step_s, overrun_s)[0] == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("overrun_s", [0.0, 0.002])
def test_an_urgent_stream_waits_for_a_slice_and_a_step(overrun_s: float) -> None:
    assert simulate(0.9, 0.004, overrun_s)[1] <= 0.008 + 0.01 / 9 + overrun_s + 0.004 + 1e-9


def test_a_lane_alone_has_all_the_time() -> None:
    clock = LaneClock(0.9)
    for lane in Lane:
        turn = next_turn(clock, {lane})
        assert turn.lane is lane
        assert not turn.slice


def test_steps_are_short_only_where_streams_wait_for_them() -> None:
    clock = LaneClock(0.9)
    assert next_turn(clock, {Lane.SHARED}).step_s == 0.05
    assert next_turn(clock, {Lane.URGENT}).step_s < next_turn(clock, {Lane.URGENT}, set()).step_s == 0.05
    clock.ran(next_turn(clock), 1.0)
    short, long = next_turn(clock), next_turn(clock, decoding={Lane.URGENT})
    assert short.slice
    assert short.step_s < long.step_s == 0.05  # spread over slices, it holds up nobody


def test_bursts_are_short_until_a_stream_is_steady() -> None:
    clock = LaneClock(0.9)
    young, steady = (next_turn(clock, {Lane.URGENT}, youngest_s=s).time_limit_s for s in (0.0, 1.0))
    assert young < steady


def test_nothing_is_owed_for_time_without_work() -> None:
    clock = LaneClock(0.5)
    for _ in range(100):
        clock.ran(next_turn(clock, {Lane.URGENT}), 1.0)
    assert next_turn(clock).lane is Lane.URGENT


def test_what_is_owed_is_bounded() -> None:
    clock = LaneClock(0.5)
    clock.ran(next_turn(clock), 100.0)  # a step that took very long
    turn = next_turn(clock)
    assert turn.lane is Lane.SHARED
    assert turn.time_limit_s <= 0.05
    clock.ran(turn, 0.008)
    assert next_turn(clock).lane is Lane.URGENT  # never two slices in a row
