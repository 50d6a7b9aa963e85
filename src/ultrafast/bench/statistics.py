"""What samples tell of the quantity behind them, and how sure: estimates with intervals, and the words for them.

Quantiles and proportions make no assumption about the distribution; means assume little, bootstraps that rows are
independent. Calls that never ended are ``inf`` among times: they count inside percentiles, never beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from ultrafast.report.estimate import Estimate as Estimate

Floats = NDArray[np.float64]
Statistic = Callable[..., Any]
"""Of columns whose last axis is the rows; what it returns lacks that axis: ``lambda a, b: (a / b).mean(axis=-1)``."""

_BATCH = 2_000_000  # resampled values at a time: 16 MB a column
_JACKKNIFE = 200  # leave-out passes at most; with more rows, several are left out together


def needed_for(q: float, confidence: float = 0.95) -> int:
    """The fewest samples of which the extreme one bounds the quantile: ``1 - q ** n >= confidence``.

    29 for p90, 59 for p95, 299 for p99; 5 for the median.
    """
    return math.ceil(math.log(1 - confidence) / math.log(max(q, 1 - q)) - 1e-9)


def quantile(values: ArrayLike, q: float, confidence: float = 0.95) -> Estimate:
    """A quantile (``0 < q < 1``; interpolated) between two order statistics that hold it with that confidence.

    How many samples lie below the true quantile is binomial, whatever the distribution, so coverage is at least the
    confidence. What may go wrong is split evenly between both sides; where one side cannot do with its half even at
    the extreme sample, it takes what it needs and the other gets the rest.

    Raises:
        ValueError: a value is ``nan``.
    """
    ordered = np.sort(_floats(values))
    n = len(ordered)
    if n == 0:
        return Estimate(math.nan, -math.inf, math.inf, 0)
    below, above = _ranks(n, q, confidence)
    low = float(ordered[below - 1]) if below else -math.inf
    high = float(ordered[above - 1]) if above <= n else math.inf
    # With few samples a quantile near the end is likely outside of them all, and so beyond what interpolation gives.
    return Estimate(min(max(_interpolated(ordered, q), low), high), low, high, n)


def median(values: ArrayLike, confidence: float = 0.95) -> Estimate:
    """The quantile at one half."""
    return quantile(values, 0.5, confidence)


def mean(values: ArrayLike, confidence: float = 0.95) -> Estimate:
    """The mean, with Student's interval: for many samples, or few that spread evenly around it.

    Raises:
        ValueError: a value is ``nan``.
    """
    sample = _floats(values)
    n = len(sample)
    if n == 0:
        return Estimate(math.nan, -math.inf, math.inf, 0)
    value = float(sample.mean())
    if n == 1 or math.isinf(value):
        return Estimate(value, -math.inf, math.inf, n)
    reach = float(stats.t.ppf((1 + confidence) / 2, n - 1) * sample.std(ddof=1)) / math.sqrt(n)
    return Estimate(value, value - reach, value + reach, n)


def proportion(successes: int, n: int, confidence: float = 0.95) -> Estimate:
    """A share, with Wilson's score interval, which holds for small counts and near 0 and 1 as well."""
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n} is no share")
    if n == 0:
        return Estimate(math.nan, 0.0, 1.0, 0)
    share, z = successes / n, float(stats.norm.ppf((1 + confidence) / 2))
    weight = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / weight
    reach = z / weight * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    # At the ends the formula gives the end exactly, but for rounding.
    low = 0.0 if successes == 0 else centre - reach
    high = 1.0 if successes == n else centre + reach
    return Estimate(share, low, high, n)


def bootstrap(
    statistic: Statistic, *columns: ArrayLike, seed: int = 0, repeats: int = 2000, confidence: float = 0.95
) -> Estimate:
    """Any statistic of rows, by resampling them: columns of one length stay together (paired data).

    BCa intervals (Efron 1987: corrected for bias and for skew) with percentiles widened as Student's t is wider than
    the normal distribution (Hesterberg 2015), without which few rows give intervals that are too short. A resample
    for which the statistic is ``nan`` counts as unbounded on both sides.

    Raises:
        ValueError: columns differ in length.
    """
    group = tuple(np.asarray(column, dtype=float) for column in columns)
    if len({len(column) for column in group}) != 1:
        raise ValueError("columns of paired rows differ in length")
    return _bootstrap(statistic, [group], seed, repeats, confidence)


def bootstrap_apart(
    statistic: Statistic, *samples: ArrayLike, seed: int = 0, repeats: int = 2000, confidence: float = 0.95
) -> Estimate:
    """As `bootstrap`, of samples that are independent of each other and may differ in length."""
    groups = [(np.asarray(sample, dtype=float),) for sample in samples]
    return _bootstrap(statistic, groups, seed, repeats, confidence)


def describe(estimate: Estimate, digits: int = 3, *, scale: float = 1.0, unit: str = "") -> str:
    """For people: ``281 (274 to 290)``, to so many significant digits of the value; ``never`` for what did not end.

    Args:
        scale: what to multiply by first: 1000 shows seconds as milliseconds, 100 shares as per cent.
        unit: written after the value.
    """
    if math.isnan(estimate.value):
        return "–"
    value, low, high = (scale * number for number in (estimate.value, estimate.low, estimate.high))
    largest = max((abs(number) for number in (value, low, high) if math.isfinite(number)), default=0.0)
    size = abs(value) if math.isfinite(value) and value else largest
    places = max(0, digits - 1 - math.floor(math.log10(size))) if size else 0

    def text(number: float) -> str:
        return f"{number:,.{places}f}" if math.isfinite(number) else "never"

    shown = f"{text(value)} {unit}".rstrip() if math.isfinite(value) else text(value)
    match math.isfinite(low), math.isfinite(high):
        case True, True:
            return f"{shown} ({text(low)} to {text(high)})"
        case True, False:
            return f"{shown} (at least {text(low)})"
        case False, True:
            return f"{shown} (at most {text(high)})"
    return f"{shown} (n = {estimate.n}: too few for an interval)" if low < high else shown


def describe_seconds(estimate: Estimate, digits: int = 3) -> str:
    """As `describe`, in milliseconds below a second."""
    if abs(estimate.value) < 1:
        return describe(estimate, digits, scale=1000, unit="ms")
    return describe(estimate, digits, unit="s")


def describe_quantile(values: ArrayLike, q: float, digits: int = 3, *, scale: float = 1.0, unit: str = "") -> str:
    """As `describe`, or how many more samples the quantile needs before it can be told."""
    missing = needed_for(q) - len(_floats(values))
    if missing > 0:
        return f"needs {missing:,} more"
    return describe(quantile(values, q), digits, scale=scale, unit=unit)


def _floats(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=float)
    if np.isnan(array).any():
        raise ValueError("nan among the samples: leave out what was not measured; inf is for what never ended")
    return array


def _interpolated(ordered: Floats, q: float) -> float:
    """Between the neighbours at ``q * (n - 1)``; NumPy's own gives ``nan`` between infinite neighbours."""
    position = q * (len(ordered) - 1)
    lower = math.floor(position)
    below, part = float(ordered[lower]), position - lower
    if part < 1e-9:
        return below
    above = float(ordered[lower + 1])
    return above if math.isinf(above) else below + part * (above - below)


def _ranks(n: int, q: float, confidence: float) -> tuple[int, int]:
    """1-based ranks that hold the quantile; 0 and ``n + 1`` where no sample bounds it on that side."""
    risk = 1 - confidence
    at_most = stats.binom.cdf(np.arange(n + 1), n, q)  # [k]: chance that at most k samples lie below
    # Rank r is above the quantile with chance at_most[r - 1]; below it, with 1 - at_most[r - 1].
    half = risk / 2
    below = int(np.searchsorted(at_most, half, side="right"))
    above = int(np.searchsorted(at_most, 1 - half, side="left")) + 1
    if above > n and q**n <= risk:
        above = n
        below = int(np.searchsorted(at_most, risk - q**n, side="right"))
    elif below < 1 and (1 - q) ** n <= risk:
        below = 1
        above = int(np.searchsorted(at_most, 1 - risk + (1 - q) ** n, side="left")) + 1
    return below, above


def _bootstrap(
    statistic: Statistic, groups: Sequence[tuple[Floats, ...]], seed: int, repeats: int, confidence: float
) -> Estimate:
    sizes = [len(group[0]) for group in groups]
    n = min(sizes)
    if n == 0:
        return Estimate(math.nan, -math.inf, math.inf, 0)
    value = float(statistic(*(column for group in groups for column in group)))
    if n == 1:
        return Estimate(value, -math.inf, math.inf, sum(sizes))
    random = np.random.default_rng(seed)
    batches = []
    for start in range(0, repeats, batch := max(1, _BATCH // max(sizes))):
        count = min(batch, repeats - start)
        rows = [random.integers(0, size, (count, size), dtype=np.int32) for size in sizes]
        batches.append(_of_rows(statistic, groups, rows))
    resampled = np.concatenate(batches)
    z = math.sqrt(n / (n - 1)) * stats.t.ppf((1 + confidence) / 2, n - 1)
    bias = _bias(resampled, value)
    skew = _acceleration(statistic, groups)
    low, high = (float(stats.norm.cdf(bias + (bias + side) / (1 - skew * (bias + side)))) for side in (-z, z))
    lows = np.sort(np.where(np.isnan(resampled), -np.inf, resampled))
    highs = np.sort(np.where(np.isnan(resampled), np.inf, resampled))
    last = repeats - 1
    return Estimate(
        value,
        float(lows[max(0, math.floor(low * repeats) - 1)]),
        float(highs[min(last, math.ceil(high * repeats))]),
        sum(sizes),
    )


def _of_rows(statistic: Statistic, groups: Sequence[tuple[Floats, ...]], rows: Sequence[NDArray[Any]]) -> Floats:
    """The statistic for each line of row numbers, given for each group."""
    taken = [column[chosen] for group, chosen in zip(groups, rows, strict=True) for column in group]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(statistic(*taken), dtype=float)


def _bias(resampled: Floats, value: float) -> float:
    """Where the value stands among the resampled ones, in standard deviations; 0 in the middle."""
    below = np.mean(resampled < value) + np.mean(resampled == value) / 2
    edge = 1 / (len(resampled) + 1)
    return float(stats.norm.ppf(np.clip(below, edge, 1 - edge)))


def _acceleration(statistic: Statistic, groups: Sequence[tuple[Floats, ...]]) -> float:
    """The skew of how much single rows weigh, from leaving some out in turn; 0 where it cannot be told."""
    cubes = squares = 0.0
    for index, group in enumerate(groups):
        size = len(group[0])
        width = math.ceil(size / _JACKKNIFE)
        passes = size // width
        everything = np.arange(size)
        rows = [np.broadcast_to(np.arange(len(other[0])), (passes, len(other[0]))) for other in groups]
        rows[index] = np.stack([np.delete(everything, slice(i * width, (i + 1) * width)) for i in range(passes)])
        without = _of_rows(statistic, groups, rows)
        if not np.isfinite(without).all():
            return 0.0
        weights = (without.mean() - without) * (passes - 1) / passes
        cubes += float((weights**3).sum())
        squares += float((weights**2).sum())
    return cubes / (6 * squares**1.5) if squares > 0 else 0.0
