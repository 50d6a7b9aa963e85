"""On simulated workflows with a known effect: do intervals hold the truth as often as they say, and how often does the
test that may be looked at any time find what is not there?"""

from __future__ import annotations

import math

import numpy as np
import pytest

from ultrafast.bench.ab.statistics import always_valid, speedup

REPEATS = 500
SPEEDUP = 12.5  # of the part that a faster tier makes faster


def noise(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """How much longer a run takes than it should: a little, and now and then a lot."""
    usual = np.exp(random.normal(0, 0.15, shape))
    return np.where(random.random(shape) < 0.05, usual * (1 + random.exponential(1.5, shape)), usual)


def workflow(
    random: np.random.Generator, tasks: int, *, repeats: int = REPEATS, spread: float = 0.8
) -> tuple[np.ndarray, np.ndarray]:
    """Times of (repeats, tasks) under both arms: tools, which cost the same, and model output, which B makes faster."""
    shape = (repeats, tasks)
    size, share = np.exp(random.normal(3, spread, (repeats, tasks))), random.beta(6, 3, (repeats, tasks))
    a = size * (share * noise(random, shape) + (1 - share) * noise(random, shape))
    b = size * (share / SPEEDUP * noise(random, shape) + (1 - share) * noise(random, shape))
    return a, b


@pytest.fixture(scope="module")
def truth() -> float:
    """The geometric mean of the ratio, over so many tasks that it is known to a per mille or two."""
    a, b = workflow(np.random.default_rng(99), 400_000, repeats=1)
    return math.exp(float(speedup.log_ratios(a, b).mean()))


@pytest.mark.parametrize("tasks", [8, 20, 60])
def test_the_interval_of_the_typical_speedup_covers_93_to_97_percent(tasks: int, truth: float) -> None:
    a, b = workflow(np.random.default_rng(tasks), tasks)
    estimates = [speedup.typical(a[i], b[i], seed=i) for i in range(REPEATS)]
    assert 0.93 <= np.mean([e.low <= truth <= e.high for e in estimates]) <= 0.97


@pytest.mark.parametrize("tasks", [40])
def test_the_interval_of_the_overall_speedup_covers_as_often_where_sizes_are_alike(tasks: int) -> None:
    big_a, big_b = workflow(np.random.default_rng(98), 400_000, repeats=1, spread=0.3)
    a, b = workflow(np.random.default_rng(tasks), tasks, spread=0.3)
    estimates = [speedup.overall(a[i], b[i], seed=i) for i in range(REPEATS)]
    assert 0.925 <= np.mean([e.low <= big_a.sum() / big_b.sum() <= e.high for e in estimates]) <= 0.975


NULLS = {
    "normal": lambda r, shape: r.normal(0, 1, shape),
    "skewed times": lambda r, shape: np.exp(r.normal(0, 1.5, shape)),
    "heavy tails": lambda r, shape: r.pareto(1.1, shape) + 1,
    "rarely very slow": lambda r, shape: np.where(r.random(shape) < 0.05, 100.0, 1.0) * (1 + r.random(shape)),
    "drifting": lambda r, shape: (1 + np.arange(shape[1])) * np.exp(r.normal(0, 0.1, shape)),
}


@pytest.mark.parametrize("kind", NULLS)
def test_looking_after_every_pair_finds_nothing_in_nothing_in_95_percent(kind: str) -> None:
    random = np.random.default_rng(7)
    shape = (1000, 200)
    if kind == "normal":
        ratios = NULLS[kind](random, shape)
    else:
        ratios = speedup.log_ratios(NULLS[kind](random, shape), NULLS[kind](random, shape))
    crossed = [
        always_valid.first_crossing(always_valid.sign_evidence(side), always_valid.ALPHA / 2) > 0
        for side in (ratios, -ratios)
    ]
    assert np.mean(crossed[0] | crossed[1]) <= 0.05


def test_the_second_run_of_a_pair_may_be_quicker() -> None:
    """A cache that the first run warmed: a coin chose the order, so that it is for neither arm."""
    random = np.random.default_rng(8)
    first_is_a = random.random((1000, 200)) < 0.5
    ratios = np.where(first_is_a, 0.7, -0.7) + random.normal(0, 0.1, first_is_a.shape)
    crossed = [always_valid.first_crossing(always_valid.sign_evidence(s), 0.025) > 0 for s in (ratios, -ratios)]
    assert np.mean(crossed[0] | crossed[1]) <= 0.05


def test_a_real_effect_is_found_soon() -> None:
    a, b = workflow(np.random.default_rng(9), 60, repeats=300)
    found = always_valid.first_crossing(always_valid.sign_evidence(speedup.log_ratios(a, b)), 0.025)
    assert (found > 0).mean() > 0.99
    assert np.median(found) <= 12
    small = np.random.default_rng(10).normal(0.05, 0.1, (300, 400))
    found = always_valid.first_crossing(always_valid.sign_evidence(small), 0.025)
    assert 1.5 * (1.96 * 0.1 / 0.05) ** 2 < np.median(found[found > 0]) < 80  # a test at fixed n has 80 % power at 32


def test_the_sequence_of_intervals_holds_the_truth_at_every_look() -> None:
    samples = np.random.default_rng(11).standard_t(3, (80, 60)) * 0.2 + 0.4
    missed = 0
    for sample in samples:
        intervals = (always_valid.interval(sample[:n]) for n in range(6, 61, 9))
        missed += any(not low <= 0.4 <= high for low, high in intervals)
    assert missed <= 4


def test_looking_at_successes_at_any_time() -> None:
    """Bets against "B is worse by no more than the margin", where it is worse by exactly that."""
    random = np.random.default_rng(12)
    worse = random.choice([1.0, 0.0, -1.0], p=[0.06, 0.9, 0.04], size=(600, 800))
    assert (always_valid.first_crossing(always_valid.mean_evidence(worse, 0.02)) > 0).mean() <= 0.05
    much_worse = random.choice([1.0, 0.0, -1.0], p=[0.25, 0.7, 0.05], size=(200, 300))
    assert (always_valid.first_crossing(always_valid.mean_evidence(much_worse, 0.02)) > 0).mean() > 0.95
