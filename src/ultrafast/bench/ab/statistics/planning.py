"""How many tasks or users a question takes, and what looking early costs."""

from __future__ import annotations

import math

from scipy import stats

POWER = 0.80


def tasks_for_ratio(sd: float, reach: float) -> int:
    """Tasks until a speed-up is known to within ``reach`` (0.1: 10 %) at 95 %, if log-ratios spread by ``sd``."""
    return math.ceil((_z(0.975) * sd / math.log1p(reach)) ** 2)


def tasks_for_margin(margin: float, disagreement: float, *, power: float = POWER) -> int:
    """Tasks to show that B is no worse than a margin (one-sided 5 %), if it is as good.

    Args:
        margin: as a share.
        disagreement: share of tasks on which one arm is right and the other is not.
    """
    return math.ceil((_z(0.95) + _z(power)) ** 2 * disagreement / margin**2)


def tasks_that_agree(margin: float) -> int:
    """The fewest tasks that can show it: so many on which the arms agree, every one (Tango's bound)."""
    return math.floor(_z(0.95) ** 2 * (1 / margin - 1)) + 1


def users_for_rate(rate: float, change: float, *, power: float = POWER) -> int:
    """Users in each of two arms to see a rate change by so much (shares; two-sided 5 %), each user in one arm."""
    return math.ceil(2 * (_z(0.975) + _z(power)) ** 2 * rate * (1 - rate) / change**2)


def users_for_mean(sd: float, change: float, *, power: float = POWER) -> int:
    """The same of a mean of values that spread by ``sd``."""
    return math.ceil(2 * ((_z(0.975) + _z(power)) * sd / change) ** 2)


def reach_of_looks(n: int, planned: int, alpha: float = 0.05) -> float:
    """Half the width of a confidence sequence after ``n`` observations, in standard errors: valid at every look.

    Robbins' normal mixture, tightest at ``planned`` (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2021, equations
    2.5 and B.6). One fixed look has 1.96.
    """
    tuning = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / planned
    spread = n * tuning + 1
    return math.sqrt(2 * spread / (n * tuning) * math.log(math.sqrt(spread) / alpha))


def _z(quantile: float) -> float:
    return float(stats.norm.ppf(quantile))
