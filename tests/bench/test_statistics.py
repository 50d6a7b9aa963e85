"""Intervals cover what they say, against exact binomials, SciPy's own, and simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ultrafast.bench import statistics
from ultrafast.bench.statistics import (
    Estimate,
    bootstrap,
    bootstrap_apart,
    describe,
    describe_quantile,
    describe_seconds,
    mean,
    median,
    needed_for,
    proportion,
    quantile,
)

INF = math.inf


def chance_between(n: int, q: float, low: int, high: int) -> float:
    """That at least `low` and fewer than `high` of `n` samples lie below the quantile."""
    return float(stats.binom.pmf(np.arange(low, min(high, n + 1)), n, q).sum())


@pytest.mark.parametrize("q", [0.05, 0.1, 0.5, 0.9, 0.95, 0.99])
def test_ranks_cover_the_quantile_of_any_distribution(q: float) -> None:
    for n in (1, 2, 4, 5, 6, 10, 28, 29, 30, 45, 58, 59, 73, 100, 298, 299, 368, 369, 500):
        interval = quantile(np.arange(1.0, n + 1), q)
        low = int(interval.low) if math.isfinite(interval.low) else 0
        high = int(interval.high) if math.isfinite(interval.high) else n + 1
        assert chance_between(n, q, low, high) >= 0.95 - 1e-12, n
        assert interval.low <= interval.value <= interval.high
        if q >= 0.5:
            assert math.isfinite(interval.high) == (n >= needed_for(q)), n
        if q <= 0.5:
            assert math.isfinite(interval.low) == (n >= needed_for(q)) or (q == 0.5 and n == 5), n


def test_ranks_are_no_wider_than_they_must_be() -> None:
    for q, n in ((0.5, 100), (0.9, 200), (0.99, 2000)):
        interval = quantile(np.arange(1.0, n + 1), q)
        low, high = int(interval.low), int(interval.high)
        assert chance_between(n, q, 0, low + 1) > 0.025
        assert chance_between(n, q, high - 1, n + 1) > 0.025


def test_fewest_samples() -> None:
    assert [needed_for(q) for q in (0.5, 0.9, 0.95, 0.99, 0.01)] == [5, 29, 59, 299, 299]
    for q in (0.5, 0.75, 0.9, 0.95, 0.99, 0.999):
        n = needed_for(q)
        assert 1 - q**n >= 0.95 > 1 - q ** (n - 1)


def test_quantiles_interpolate_as_numpy_does() -> None:
    values = np.random.default_rng(0).lognormal(size=101)
    for q in (0.05, 0.5, 0.9, 0.95, 0.99):
        assert quantile(values, q).value == pytest.approx(float(np.quantile(values, q)))


def test_calls_that_never_ended_count_in_percentiles() -> None:
    times = [*np.linspace(1, 2, 290), *[INF] * 10]
    assert median(times).value == pytest.approx(1.516, abs=0.01)
    assert math.isfinite(quantile(times, 0.95).value)
    assert quantile(times, 0.99) == Estimate(INF, quantile(times, 0.99).low, INF, 300)
    assert quantile([INF] * 300, 0.99) == Estimate(INF, INF, INF, 300)
    assert mean([1.0, INF]) == Estimate(INF, -INF, INF, 2)


def test_nothing_is_known_without_samples() -> None:
    for estimate in (quantile([], 0.9), mean([]), bootstrap(np.mean, [])):
        assert math.isnan(estimate.value)
        assert not estimate.is_bounded
    assert proportion(0, 0).low == 0
    assert proportion(0, 0).high == 1


def test_what_was_not_measured_is_no_sample() -> None:
    with pytest.raises(ValueError, match="nan"):
        quantile([1.0, math.nan], 0.5)
    with pytest.raises(ValueError, match="nan"):
        mean([math.nan])


def test_mean_is_students() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert mean(values) == Estimate(3.75, pytest.approx(expected.low), pytest.approx(expected.high), 4)
    assert mean([3.0]) == Estimate(3.0, -INF, INF, 1)


@pytest.mark.parametrize(("successes", "n"), [(0, 5), (1, 5), (5, 5), (50, 100), (2499, 2500), (0, 1)])
def test_proportion_is_wilsons(successes: int, n: int) -> None:
    expected = stats.binomtest(successes, n).proportion_ci(method="wilson")
    estimate = proportion(successes, n)
    assert (estimate.value, estimate.n) == (successes / n, n)
    assert (estimate.low, estimate.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


@pytest.mark.parametrize(("successes", "n"), [(-1, 3), (4, 3), (1, 0)])
def test_no_proportion(successes: int, n: int) -> None:
    with pytest.raises(ValueError):
        proportion(successes, n)


def mean_log_ratio(before: Any, after: Any) -> Any:
    return np.log(after / before).mean(axis=-1)


def mean_of(values: Any) -> Any:
    return values.mean(axis=-1)


def test_bootstrap_covers_in_93_to_97_of_100_with_few_skewed_pairs() -> None:
    random, runs, inside = np.random.default_rng(1), 600, np.zeros(2)
    for run in range(runs):
        before = random.lognormal(0, 1, 16)
        after = before * random.lognormal(-0.7, 0.4, 16)
        pairs = bootstrap(mean_log_ratio, before, after, seed=run, repeats=800)
        others = random.normal(3, 2, 12), random.normal(1, 1, 30)
        apart = bootstrap_apart(lambda a, b: mean_of(a) - mean_of(b), *others, seed=run, repeats=800)
        inside += (pairs.low <= -0.7 <= pairs.high, apart.low <= 2 <= apart.high)
    assert (inside / runs >= 0.93).all(), inside / runs
    assert (inside / runs <= 0.97).all(), inside / runs


def test_bootstrap_is_that_of_scipy_with_many_rows() -> None:
    values = np.random.default_rng(1).lognormal(size=400)
    ours = bootstrap(mean_of, values, repeats=5000)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=5000, rng=np.random.default_rng(2)).confidence_interval
    width = theirs.high - theirs.low
    assert ours.value == values.mean()
    assert ours.low == pytest.approx(theirs.low, abs=width * 0.05)
    assert ours.high == pytest.approx(theirs.high, abs=width * 0.05)


def test_paired_rows_stay_together() -> None:
    before = np.random.default_rng(2).lognormal(0, 2, 50)
    after = before * 1.1
    together = bootstrap(mean_log_ratio, before, after)
    apart = bootstrap_apart(lambda a, b: mean_of(np.log(b)) - mean_of(np.log(a)), before, after)
    assert together.high - together.low < 1e-9
    assert apart.high - apart.low > 0.5


def test_bootstrap_repeats_itself() -> None:
    values = np.random.default_rng(3).normal(size=30)
    assert bootstrap(mean_of, values, seed=1) == bootstrap(mean_of, values, seed=1)
    assert bootstrap(mean_of, values, seed=1) != bootstrap(mean_of, values, seed=2)


def test_bootstrap_of_more_rows_than_fit_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_BATCH", 100_000)
    values = np.random.default_rng(4).normal(10, 1, 9_001)
    estimate = bootstrap(mean_of, values, repeats=105)
    assert estimate.low < estimate.value < estimate.high
    assert estimate.high - estimate.low == pytest.approx(4 / math.sqrt(9_001), rel=0.5)


def test_bootstrap_says_when_it_cannot_tell() -> None:
    assert bootstrap(mean_of, [3.0]) == Estimate(3.0, -INF, INF, 1)
    undefined = bootstrap(lambda a: a.sum(axis=-1) / a.sum(axis=-1), [0.0, 0.0, 0.0, 1.0])
    assert (undefined.low, undefined.high) == (-INF, INF)
    with pytest.raises(ValueError, match="length"):
        bootstrap(mean_log_ratio, [1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (Estimate(281.4, 274.1, 289.9, 50), "281 (274 to 290)"),
        (Estimate(0.0281, 0.0274, 0.029, 50), "0.0281 (0.0274 to 0.0290)"),
        (Estimate(12345.6, 12000, 13000, 50), "12,346 (12,000 to 13,000)"),
        (Estimate(2.0, -INF, 3.0, 5), "2.00 (at most 3.00)"),
        (Estimate(2.0, 1.5, INF, 30), "2.00 (at least 1.50)"),
        (Estimate(INF, 1.5, INF, 300), "never (at least 1.50)"),
        (Estimate(INF, INF, INF, 300), "never"),
        (Estimate(2.0, -INF, INF, 1), "2.00 (n = 1: too few for an interval)"),
        (Estimate(0.0, 0.0, 0.32, 8), "0.000 (0.000 to 0.320)"),
        (Estimate(0.0, 0.0, 0.0, 8), "0 (0 to 0)"),
        (Estimate(-1.5, -2.0, 0.25, 8), "-1.50 (-2.00 to 0.25)"),
        (Estimate(math.nan, -INF, INF, 0), "–"),
    ],
)
def test_words(estimate: Estimate, words: str) -> None:
    assert describe(estimate) == words


def test_words_with_units() -> None:
    estimate = Estimate(0.2814, 0.2741, 0.2899, 50)
    assert describe_seconds(estimate) == describe(estimate, scale=1000, unit="ms") == "281 ms (274 to 290)"
    assert describe_seconds(Estimate(1.5, 1.25, 2, 50)) == "1.50 s (1.25 to 2.00)"
    assert describe_seconds(Estimate(INF, INF, INF, 50)) == "never"


def test_words_of_a_quantile() -> None:
    assert describe_quantile(np.linspace(0, 1, 100), 0.99) == "needs 199 more"
    assert describe_quantile(np.linspace(0, 1, 58), 0.95) == "needs 1 more"
    assert describe_quantile(np.linspace(1, 2, 59), 0.95).startswith("1.95 (")
