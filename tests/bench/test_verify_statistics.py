"""The statistics of `verify`, against tables, other implementations and their own promises."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy import stats

from ultrafast.bench.verify.behaviour import ratio_of_means
from ultrafast.bench.verify.paired import Pairs, clean_pairs_needed, excess_bounds, pairs_needed, rate_bounds
from ultrafast.bench.verify.plan import needed, speed_pairs_needed, tokens_needed
from ultrafast.bench.verify.two_sample import compare, samples_needed
from ultrafast.bench.verify.verdict import ALPHA, SHARES, Level, Margins, Verdict, overall

TABLE = {  # margin in points: pairs at 2, 5, 10 and 20 % of disagreement, alpha 5 % one-sided, power 80 %
    1: (1237, 3092, 6183, 12366),
    2: (310, 773, 1546, 3092),
    3: (138, 344, 687, 1374),
    5: (50, 124, 248, 495),
}


@pytest.mark.parametrize("margin", TABLE)
def test_pairs_needed_are_those_of_the_table(margin: int) -> None:
    assert tuple(pairs_needed(margin / 100, d, power=0.8) for d in (0.02, 0.05, 0.1, 0.2)) == TABLE[margin]


def test_clean_pairs_clear_the_margin_and_one_fewer_does_not() -> None:
    for margin in (0.01, 0.02, 0.05):
        n = clean_pairs_needed(margin)
        assert Pairs(n, 0, 0).lower(0.95) >= -margin - 1e-9
        assert Pairs(n - 1, 0, 0).lower(0.95) < -margin


@pytest.mark.parametrize(("n", "lost", "won"), [(40, 3, 1), (240, 0, 0), (500, 30, 12), (100, 0, 9), (100, 60, 0)])
def test_bounds_are_where_the_score_test_rejects(n: int, lost: int, won: int) -> None:
    """Tango's statistic, with the nuisance parameter found by maximising the likelihood itself."""
    pairs = Pairs(n, lost, won)
    theta = pairs.lower(0.95)
    grid = np.linspace(max(0.0, -theta) + 1e-7, (1 - theta) / 2 - 1e-9, 200_001)  # share lost; that won is theta more
    won_share, same = grid + theta, 1 - 2 * grid - theta
    keep = (won_share > 0) & (same > 0)
    likelihood = lost * np.log(grid) + won * np.log(np.maximum(won_share, 1e-300))
    likelihood += (n - lost - won) * np.log(np.maximum(same, 1e-300))
    q = grid[keep][np.argmax(likelihood[keep])]
    z = (won - lost - n * theta) / math.sqrt(n * (2 * q + theta - theta**2))
    assert z == pytest.approx(stats.norm.ppf(0.95), abs=0.02)
    assert pairs.upper(0.95) == -Pairs(n, won, lost).lower(0.95)


def test_the_bound_holds_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    lost, won, n = 0.06, 0.04, 400
    drawn = rng.multinomial(n, [lost, won, 1 - lost - won], 2000)
    covered = np.mean([Pairs(n, a, b).lower(0.95) <= won - lost for a, b, _ in drawn])
    assert covered == pytest.approx(0.95, abs=0.015)


def test_mcnemar_is_the_binomial_test() -> None:
    pairs = Pairs(200, 12, 3)
    assert pairs.p_worse() == pytest.approx(stats.binomtest(12, 15, alternative="greater").pvalue)
    assert pairs.p_different() == pytest.approx(stats.binomtest(12, 15).pvalue)
    assert Pairs(200, 0, 0).p_worse() == 1
    assert Pairs.of([True, True, False], [False, True, True]) == Pairs(3, 1, 1)


def test_rates_and_their_excess() -> None:
    assert rate_bounds(0, 1000, 0.95) == (0.0, pytest.approx(-math.log(0.05) / 1000))
    low, high = rate_bounds(10, 1000, 0.95)
    assert stats.poisson.sf(9, 1000 * low) == pytest.approx(0.05)
    assert stats.poisson.cdf(10, 1000 * high) == pytest.approx(0.05)
    assert excess_bounds(10, 0, 1, 5, 0.95) == (-math.inf, math.inf)
    rng = np.random.default_rng(1)
    rows = [excess_bounds(a, 1000, b, 1000, 0.95) for a, b in rng.poisson([20, 8], (1000, 2))]
    assert np.mean([low <= 0.012 for low, _ in rows]) == pytest.approx(0.95, abs=0.03)
    assert np.mean([high >= 0.012 for _, high in rows]) == pytest.approx(0.95, abs=0.02)


def test_ratio_of_means() -> None:
    rng = np.random.default_rng(2)
    drawn = rng.lognormal(3, 0.5, (1000, 80))
    bounds = [ratio_of_means(row, 1.1 * row * rng.lognormal(0, 0.2, 80), 0.95) for row in drawn]
    truth = 1.1 * math.exp(0.02)
    assert np.mean([bound.low <= truth for bound in bounds]) == pytest.approx(0.95, abs=0.03)
    assert np.mean([bound.high >= truth for bound in bounds]) == pytest.approx(0.95, abs=0.03)


def texts(rng: random.Random, prompts: int, count: int, letters: str) -> list[list[str]]:
    return [["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(count)] for _ in range(prompts)]


def test_p_values_are_exact_under_no_difference() -> None:
    rng = random.Random(0)
    ps = [compare(texts(rng, 4, 4, "aab "), texts(rng, 4, 4, "aab "), seed=i).p for i in range(250)]
    for level in (0.02, 0.1, 0.5):
        assert np.mean(np.array(ps) <= level) <= level + 3 * math.sqrt(level * (1 - level) / 250)
    assert np.mean(np.array(ps) <= 0.5) > 0.35  # and not merely timid


def test_other_texts_are_found_and_equal_ones_are_not() -> None:
    rng = random.Random(1)
    found = compare(texts(rng, 10, 8, "aab "), texts(rng, 10, 8, "abb "), seed=0)
    assert found.p <= 0.01
    assert found.by_statistic["length"] > 0.01
    same = texts(rng, 10, 8, "aab ")
    assert compare(same, same, seed=0).p > 0.5


@pytest.mark.parametrize("script", ["абвгд ", "一二三四五", "😀😁😂🤣"])
def test_any_script_is_compared(script: str) -> None:
    rng = random.Random(2)
    tilted = script[0] * 3 + script
    assert compare(texts(rng, 20, 10, script), texts(rng, 20, 10, tilted), seed=0).p <= 0.02


def test_empty_and_broken_texts_are_no_error() -> None:
    rows = [["", "\ud800", "a"], ["", "", ""]]
    assert compare(rows, rows, seed=0).p == 1
    with pytest.raises(ValueError, match="same number"):
        compare([["a", "b"], ["c", "d"]], [["a", "b"], ["c"]], seed=0)


def test_samples_needed_pass_with_the_power() -> None:
    n = samples_needed(0.2, power=0.9)
    rng = np.random.default_rng(3)
    shifts = rng.normal(0, math.sqrt(2 / n), 4000)
    assert np.mean(np.abs(shifts) + stats.norm.ppf(0.95) * math.sqrt(2 / n) < 0.2) == pytest.approx(0.9, abs=0.02)


def test_speed_pairs_needed_accuse_with_the_power() -> None:
    from ultrafast.bench.statistics import median

    n = speed_pairs_needed(1.25, 0.2, power=0.9)
    rng = np.random.default_rng(4)
    drawn = rng.lognormal(0, 0.2 * math.sqrt(2), (1000, n))
    share = SHARES["tier"] / 2
    assert np.mean([median(row, 1 - 2 * share).high < 1.25 for row in drawn]) > 0.85


def test_a_plan_grows_with_power_and_shrinks_with_margins() -> None:
    def calls(points: float, power: float) -> int:
        rows = needed(Margins(points=points), power=power, discordant=0.05, floor=0.002, spread=0.2, greedy_tokens=48)
        return sum(row.calls for row in rows)

    assert calls(2, 0.8) < calls(2, 0.9) < calls(1, 0.9)
    assert tokens_needed(0.02, 0.0, power=0.9) == math.ceil(-math.log(0.05) / 0.02)


def test_errors_are_spent_once() -> None:
    assert sum(SHARES.values()) == pytest.approx(ALPHA)


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        ("PASS PASS", Verdict.PASS),
        ("PASS UNDERPOWERED", Verdict.UNDERPOWERED),
        ("UNDERPOWERED FAIL PASS", Verdict.FAIL),
        ("PASS SKIPPED", Verdict.PASS),
        ("SKIPPED SKIPPED", Verdict.UNDERPOWERED),
    ],
)
def test_verdicts_together(verdicts: str, whole: Verdict) -> None:
    levels = [Level("samples", "", Verdict(word), "") for word in verdicts.split()]
    assert overall(levels) is whole


def test_configuration_alone_passes_nobody() -> None:
    assert overall([Level("configuration", "", Verdict.PASS, "")]) is Verdict.UNDERPOWERED
