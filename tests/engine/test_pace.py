"""The size of prefill chunks."""

import pytest

from ultrafast.engine.pace import PrefillPace


def learned(seconds_per_row: float, fixed_s: float = 0.0) -> int:
    pace = PrefillPace(0, 512)
    for _ in range(50):
        pace.learn(pace.budget, 1, fixed_s + seconds_per_row * pace.budget)
    return pace.budget


def test_steps_stay_short() -> None:
    assert learned(0.001) == pytest.approx(50, abs=1)
    assert learned(0.0005) == pytest.approx(100, abs=2)


def test_bounds() -> None:
    assert learned(1e-6) == 512
    assert learned(1.0) == 16


def test_a_fixed_cost_per_step_does_not_talk_the_budget_down_for_ever() -> None:
    assert learned(0.001, fixed_s=0.05) >= 16


def test_a_slow_moment_is_forgotten() -> None:
    pace = PrefillPace(0, 512)
    pace.learn(32, 1, 10.0)
    for _ in range(50):
        pace.learn(pace.budget, 1, 0.0005 * pace.budget)
    assert pace.budget == pytest.approx(100, abs=2)


def test_decoding_says_nothing_about_prefill() -> None:
    pace = PrefillPace(0, 512)
    before = pace.budget
    pace.learn(3, 1, 10.0)
    assert pace.budget == before


def test_a_fixed_chunk_is_kept() -> None:
    pace = PrefillPace(7, 512)
    pace.learn(7, 1, 1.0)
    assert pace.budget == 7
