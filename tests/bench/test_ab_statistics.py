"""Estimates, bounds and plans of `ultrafast ab`, against figures worked out elsewhere."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ultrafast.bench.ab.statistics import always_valid, planning, speedup, success


def test_three_speedups() -> None:
    a, b = [10.0, 20.0, 400.0], [5.0, 5.0, 400.0]
    assert speedup.typical(a, b).value == pytest.approx(2.0)  # (2 * 4 * 1) ** (1 / 3)
    assert speedup.overall(a, b).value == pytest.approx(430 / 410)
    assert speedup.middle(a, b).value == pytest.approx(2.0)


@pytest.mark.parametrize("estimate", [speedup.typical, speedup.overall, speedup.middle])
def test_few_pairs_bound_nothing(estimate: object) -> None:
    one = estimate([8.0], [2.0])  # type: ignore[operator]
    assert (one.value, one.low, one.high, one.n) == (pytest.approx(4.0), 0.0, math.inf, 1)
    none = estimate([], [])  # type: ignore[operator]
    assert math.isnan(none.value)
    assert none.n == 0


def test_ratios_that_do_not_spread() -> None:
    same = speedup.typical([4.0] * 5, [2.0] * 5)
    assert (same.low, same.high) == (pytest.approx(2.0), pytest.approx(2.0))


@given(st.lists(st.tuples(st.floats(1e-3, 1e5), st.floats(1e-3, 1e5)), min_size=2, max_size=12))
def test_an_interval_is_around_its_value(times: list[tuple[float, float]]) -> None:
    a, b = zip(*times, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for estimate in (speedup.typical(a, b), speedup.overall(a, b)):
            assert estimate.low <= estimate.value * (1 + 1e-9)
            assert estimate.value <= estimate.high * (1 + 1e-9)


def test_six_pairs_are_the_fewest() -> None:
    assert always_valid.interval([0.5] * 5) == (-math.inf, math.inf)
    low, high = always_valid.interval([0.5, 0.52, 0.48, 0.51, 0.49, 0.5])
    assert -math.inf < low < 0.5 < high < math.inf
    assert always_valid.first_crossing(always_valid.sign_evidence([9.0] * 8), 0.025) in (6, 7)


def test_the_interval_and_the_test_say_the_same() -> None:
    sample = np.random.default_rng(3).normal(0.2, 0.3, 40)
    low, _ = always_valid.interval(sample)
    evidence = [always_valid.sign_evidence(sample - shift)[-1] for shift in (low - 1e-6, low + 1e-6)]
    assert evidence[0] > -math.log(0.025) > evidence[1]


def test_bounds_of_paired_shares() -> None:
    # Tango (1998), table 4: 44 pairs that disagree 12 times one way and 2 the other: -0.3860 to -0.0692
    assert success.paired_bounds(12, 2, 44, 0.95) == pytest.approx((-0.3860, -0.0692), abs=1e-4)
    z = 1.6448536  # where no pair disagrees: z² / (n + z²)
    assert success.paired_bounds(0, 0, 100, 0.90) == pytest.approx((-(z**2) / (100 + z**2), z**2 / (100 + z**2)))


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_bounds_mirror_and_hold_the_difference(only_a: int, only_b: int, agree: int) -> None:
    n = only_a + only_b + agree
    low, high = success.paired_bounds(only_a, only_b, n, 0.95)
    assert success.paired_bounds(only_b, only_a, n, 0.95) == pytest.approx((-high, -low), abs=1e-6)
    if n:
        assert -1 <= low <= (only_b - only_a) / n <= high <= 1


def test_verdicts_on_success() -> None:
    right = [True] * 200
    assert success.compare(right, right).verdict == "PASS"
    assert success.compare(right, right, complete=False).verdict == "UNDERPOWERED"  # no early PASS
    assert success.compare(right[:60], right[:60]).verdict == "UNDERPOWERED"
    wrong = [n % 4 > 0 for n in range(200)]
    assert success.compare(right, wrong).verdict == "FAIL"
    assert success.compare(right, wrong, complete=False).verdict == "FAIL"
    assert success.compare(wrong, right).verdict == "PASS"
    assert success.compare([], []).verdict == "UNDERPOWERED"


def test_what_a_comparison_counts() -> None:
    found = success.compare([1, 1, 1, 0, 0, 1], [1, 1, 0, 1, 0, 0])
    assert (found.both, found.only_a, found.only_b, found.neither, found.n) == (2, 2, 1, 1, 6)
    assert found.difference.value == pytest.approx(-1 / 6)
    assert found.p_value == 1.0
    assert success.compare([1] * 10, [0] * 10).p_value == pytest.approx(2 / 1024)


def test_a_fixed_comparison_keeps_its_risk() -> None:
    """B worse by exactly the margin passes in about 5 %; as good as A, in about the 80 % that were planned."""
    random, margin, disagree = np.random.default_rng(4), 0.05, 0.10
    n = planning.tasks_for_margin(margin, disagree)

    def passes(difference: float) -> float:
        shares = [(disagree - difference) / 2, (disagree + difference) / 2, 1 - disagree]
        counts = random.multinomial(n, shares, 1000)
        return float(np.mean([success.paired_bounds(int(a), int(b), n, 0.90)[0] > -margin for a, b, _ in counts]))

    assert passes(-margin) <= 0.07
    assert 0.74 <= passes(0.0) <= 0.86


def test_plans() -> None:
    assert [planning.tasks_for_ratio(sd, 0.1) for sd in (0.2, 0.3, 0.5)] == [17, 39, 106]
    assert [planning.tasks_for_margin(m, 0.05) for m in (0.01, 0.02, 0.03, 0.05)] == [3092, 773, 344, 124]
    assert planning.users_for_rate(0.40, 0.01) == pytest.approx(38_000, rel=0.01)
    assert planning.users_for_mean(1.0, 0.1) == 1570
    looks = [planning.reach_of_looks(n, 1000) / 1.96 for n in (100, 1000, 3000)]
    assert looks[1] == min(looks) == pytest.approx(1.55, abs=0.01)
