"""How much must be asked, so that equal arms pass with a wanted power?"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from scipy import stats

from ultrafast.bench.statistics import needed_for
from ultrafast.bench.verify import answers, behaviour, greedy, honesty, samples
from ultrafast.bench.verify.paired import clean_pairs_needed, pairs_needed
from ultrafast.bench.verify.two_sample import samples_needed
from ultrafast.bench.verify.verdict import CONFIDENCE, SHARES, Margins


@dataclass(frozen=True, slots=True)
class Needed:
    """What one level takes.

    Attributes:
        count: of `unit`; `calls`: over both arms.
        why: the margin and the formula, in words.
    """

    level: str
    count: int
    unit: str
    calls: int
    why: str


def needed(
    margins: Margins, *, power: float, discordant: float, floor: float, spread: float, greedy_tokens: int
) -> list[Needed]:
    """By level.

    Args:
        power: probability with which equal arms pass.
        discordant: share of questions and tool requests on which equal arms are expected to differ.
        floor: share of tokens at which an arm is expected to differ from itself under greedy decoding.
        spread: standard deviation of the logarithm of the speed from call to call.
        greedy_tokens: of one answer.
    """
    margin = margins.points / 100
    pairs = max(clean_pairs_needed(margin), pairs_needed(margin, discordant, power=power))
    by_noise = f"(z_alpha + z_power)² · {discordant:.3g} / {margin:g}²"
    pair_words = f"{margins.points:g} points; {by_noise}, and at least z_alpha² · (1 - m) / m"
    tokens = tokens_needed(margins.top1, floor, power=power)
    prompts = max(greedy.FEWEST, math.ceil(tokens / greedy_tokens))
    texts = samples_needed(margins.commonness, power=power)
    speed = speed_pairs_needed(honesty.LEAST_SPEED, spread, power=power)
    return [
        Needed(greedy.TITLE, prompts, "prompts", 5 * prompts, f"{margins.top1:.0%} of tokens beyond the floor"),
        Needed(greedy.TITLE_2, greedy.FEWEST, "prompts", 0, f"{margins.kl:g} nats; asked with the level above"),
        Needed(samples.TITLE, texts, "texts an arm", 2 * texts, _samples_words(margins)),
        Needed(behaviour.TITLE, pairs, "requests", 3 * pairs, pair_words),
        Needed(answers.TITLE, pairs, "questions", 3 * pairs, pair_words),
        Needed(honesty.TITLE, speed, "pairs", 2 * speed, _speed_words(spread)),
    ]


def tokens_needed(margin: float, floor: float, *, power: float) -> int:
    """Tokens an arm so that the bound of the excess over the floor clears the margin: ``(z_alpha + z_power)² · 2f /
    m²``, and at least ``-ln(alpha) / m``, which tokens without any difference take."""
    z = stats.norm.ppf(CONFIDENCE) + stats.norm.ppf(power)
    return math.ceil(max(z**2 * 2 * floor / margin**2, -math.log(1 - CONFIDENCE) / margin))


def speed_pairs_needed(least: float, spread: float, *, power: float) -> int:
    """The fewest pairs with which a tier that is as slow as the first arm is accused: enough of the quotients, whose
    logarithm has a standard deviation of ``spread · √2``, must lie below `least` for an order statistic that is above
    their median to do so."""
    share = SHARES[honesty.NAME] / 2
    below = float(stats.norm.cdf(math.log(least) / (spread * math.sqrt(2))))
    for n in itertools.count(needed_for(0.5, 1 - 2 * share)):
        rank = int(stats.binom.ppf(1 - share, n, 0.5)) + 1
        if stats.binom.sf(rank - 1, n, below) >= power:
            return n
    raise AssertionError("counting does not end")


def _samples_words(margins: Margins) -> str:
    return (
        f"{margins.commonness:g} standard deviations either way; 2 · (z_alpha + z_(1 + power)/2)² / m²; the test of "
        f"difference has {SHARES[samples.NAME]:.0%} of false alarms"
    )


def _speed_words(spread: float) -> str:
    return (
        f"a tier at the first arm's speed is found, where {honesty.LEAST_SPEED:g} times is the least and speeds vary "
        f"by {spread:.0%}"
    )
