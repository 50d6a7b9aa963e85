"""How reports write numbers of `ultrafast ab`."""

from __future__ import annotations

import math

from ultrafast.bench.statistics import Estimate, describe


def factor(estimate: Estimate) -> str:
    """``2.31 times (2.05 to 2.60)``."""
    return describe(estimate, unit="times")


def points(share: float) -> str:
    """A share in percentage points."""
    return "–" if math.isnan(share) else f"{100 * share:.3g} points"


def percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.3g} %"


def amount(value: float, unit: str) -> str:
    """Money, with as many places as it takes to see something of it.

    Args:
        unit: ``$``, or a word that comes after the number.
    """
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "any sum" if value > 0 else "nothing"
    size = abs(value)
    places = 2 if size >= 1 or size == 0 else min(9, 2 - math.floor(math.log10(size)))
    shown = f"{size:,.{places}f}"
    return f"{'-' if value < 0 else ''}{'$' if unit == '$' else ''}{shown}{'' if unit == '$' else f' {unit}'}"


def amount_range(estimate: Estimate, unit: str) -> str:
    """``$1.20 ($0.90 to $1.61)``."""
    return f"{amount(estimate.value, unit)} ({amount(estimate.low, unit)} to {amount(estimate.high, unit)})"


def seconds(value: float) -> str:
    """``12.3 s``; ``never`` where it did not end."""
    return "–" if math.isnan(value) else "never" if math.isinf(value) else f"{value:.3g} s"


def number(value: float, digits: int = 3) -> str:
    return "–" if math.isnan(value) else "no bound" if math.isinf(value) else f"{value:,.{digits}g}"
