"""Evidence that may be looked at after every pair, and acted on at any of the looks.

Each function returns the wealth of a gambler who starts with 1 and bets, before every pair, against a hypothesis under
which all the bets are fair. Wealth then stays below ``1 / alpha`` for ever with a chance of at least ``1 - alpha``
(Ville's inequality): crossing that line is a finding with at most that chance of a false alarm, however often one looks
and whatever made one stop. (Shafer 2021; Ramdas, Grünwald, Vovk and Shafer 2023.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from ultrafast.bench.statistics import Floats

ALPHA = 0.05

RATES = 2.0 ** np.arange(-2, 10)
"""Stakes, in 1 over the unit of the differences, among which the wealth is spread evenly at the start. A stake within a
factor of the square root of 2 of the best loses little, and these serve effects from 10 in a thousand to any size."""


def sign_evidence(differences: ArrayLike) -> Floats:
    """Log wealth after each pair, of a gambler on positive signs.

    Fair if each difference is as likely to be ``+x`` as ``-x``: exactly so when the arm makes no difference and a coin
    chose which arm goes first, whatever the times are, how heavy their tails, and how they drift. The stake ``l`` pays
    ``exp(l x) / cosh(l x)``. Falls short of the best bet on normal differences by little.

    Args:
        differences: (…, pairs), in the order in which they were made.

    Returns:
        (…, pairs).
    """
    sample = np.asarray(differences, dtype=float)
    return _shared_out([np.cumsum(_log_payoff(rate * sample), axis=-1) for rate in RATES])


def mean_evidence(values: ArrayLike, null: float) -> Floats:
    """Log wealth after each value, of a gambler on means above ``null``: values lie in [-1, 1], and that is all that
    is assumed (Waudby-Smith and Ramdas 2024).

    Args:
        values: (…, n), in order.
        null: between -1 and 1; the bets are unfavourable for any lower mean.
    """
    gains = np.asarray(values, dtype=float) - null
    stakes = np.geomspace(1 / 64, 0.98, 10) / (1 + null)  # below 1 / (1 + null) wealth stays positive
    return _shared_out([np.cumsum(np.log1p(stake * gains), axis=-1) for stake in stakes])


def first_crossing(log_wealth: Floats, alpha: float = ALPHA) -> NDArray[np.int64]:
    """How many pairs it took to reach ``1 / alpha``; 0 where it never did."""
    above = log_wealth >= -math.log(alpha)
    return np.where(above.any(axis=-1), above.argmax(axis=-1) + 1, 0)


def interval(differences: ArrayLike, alpha: float = ALPHA) -> tuple[float, float]:
    """Around the centre of the differences, valid at every look: shifts that `sign_evidence` does not rule out.

    It takes the differences to spread evenly around their centre, as log-ratios of times do when one arm is so many
    times as fast as the other. Six pairs are the fewest that bound anything at 5 %.
    """
    sample = np.sort(np.asarray(differences, dtype=float))
    return -_upper(-sample, alpha / 2), _upper(sample, alpha / 2)


def _upper(sample: Floats, alpha: float) -> float:
    """The largest shift that a gambler on *negative* signs has not ruled out."""
    line = -math.log(alpha)

    def above_line(shift: float) -> float:
        return float(_shared_out([np.asarray(_log_payoff(rate * (shift - sample)).sum()) for rate in RATES])) - line

    if len(sample) * math.log(2) <= line + 1e-9:  # the most that so many bets can pay
        return math.inf
    low, reach = float(sample.min()) - 1, 1.0
    while above_line(float(sample.max()) + reach) <= 0:
        reach *= 2
        if reach > 1e6:
            return math.inf
    return float(brentq(above_line, low, float(sample.max()) + reach, xtol=1e-9))


def _shared_out(log_wealth: Sequence[Floats]) -> Floats:
    """Of a gambler who gave each of these an equal part of the first coin."""
    return np.asarray(np.logaddexp.reduce(np.asarray(log_wealth), axis=0)) - math.log(len(log_wealth))


def _log_payoff(scaled: Floats) -> Floats:
    """``x - log(cosh(x))``, without overflow."""
    return np.asarray(scaled - np.abs(scaled) - np.log1p(np.exp(-2 * np.abs(scaled))) + math.log(2))
