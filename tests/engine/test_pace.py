"""The size of prefill chunks."""

import pytest

from ultrafast.engine.pace import PrefillPace

STEP_S = 0.05


def run(pace: PrefillPace, seconds_per_row: float, fixed_s: float = 0.0, steps: int = 50) -> int:
    for _ in range(steps):
        pace.learn(pace.budget(STEP_S), 1, fixed_s + seconds_per_row * pace.budget(STEP_S))
    return pace.budget(STEP_S)


@pytest.mark.parametrize(
    ("seconds_per_row", "fixed_s", "rows"), [(0.001, 0, 50), (0.0005, 0.005, 90), (0.002, 0.01, 20)]
)
def test_steps_take_the_time_they_may(seconds_per_row: float, fixed_s: float, rows: int) -> None:
    assert run(PrefillPace(0, 512), seconds_per_row, fixed_s) == pytest.approx(rows, abs=2)


def test_bounds() -> None:
    assert run(PrefillPace(0, 512), 1e-6) == 512
    assert run(PrefillPace(0, 512), 1.0) == 8


def test_a_slow_time_is_forgotten() -> None:
    pace = PrefillPace(0, 512)
    assert run(pace, 0.01, fixed_s=0.1) == 8
    assert run(pace, 0.0005) == pytest.approx(100, abs=2)


def test_several_steps_in_a_burst_are_several_steps() -> None:
    pace = PrefillPace(0, 512)
    for _ in range(50):
        pace.learn(3 * pace.budget(STEP_S), 3, 3 * 0.001 * pace.budget(STEP_S))
    assert pace.budget(STEP_S) == pytest.approx(50, abs=2)


@pytest.mark.parametrize("rows", [0, 3, 15])
def test_what_is_not_a_full_step_says_nothing(rows: int) -> None:
    pace = PrefillPace(0, 512)
    before = pace.budget(STEP_S)
    pace.learn(rows, 1, 10.0)
    assert pace.budget(STEP_S) == before


def test_a_step_with_half_of_the_tokens_does_not_ask_for_more_than_is_right() -> None:
    pace = PrefillPace(0, 512)
    full = run(pace, 0.0005)
    for _ in range(20):
        pace.learn(full // 2 + 1, 1, 0.0005 * (full // 2 + 1))
    assert pace.budget(STEP_S) == full


def test_a_fixed_chunk_is_kept() -> None:
    pace = PrefillPace(7, 512)
    pace.learn(7, 1, 1.0)
    assert pace.budget(STEP_S) == 7


def test_a_shorter_step_starts_with_fewer_tokens_at_once() -> None:
    pace = PrefillPace(0, 512)
    full = run(pace, 0.0005)
    assert pace.budget(STEP_S / 5) == full // 5
    for _ in range(20):
        pace.learn(pace.budget(0.01), 1, 0.004 * pace.budget(0.01))
    assert pace.budget(0.01) == 2  # far along a long prompt
    assert pace.budget(STEP_S) in range(10, 15)
