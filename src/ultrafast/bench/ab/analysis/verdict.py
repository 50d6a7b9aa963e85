"""The recommendation: which arm, why, how sure, and what would make it surer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from ultrafast.bench.ab.analysis.compare import Analysis
from ultrafast.bench.ab.analysis.words import amount, amount_range, factor, points
from ultrafast.bench.ab.statistics import planning
from ultrafast.bench.statistics import Estimate

Take = Literal["A", "B", "B if", "undecided"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    Attributes:
        take: the arm; ``B if``: from some value of time on.
        text: the recommendation.
        sure: how sure each part of it is.
        cautions: what is wrong with the run, or missing.
    """

    take: Take
    text: str
    sure: list[str]
    cautions: list[str] = field(default_factory=list)


def decide(analysis: Analysis, *, hour: float | None = None, net: Estimate | None = None) -> Verdict:
    """From the numbers to words.

    Args:
        hour: what an hour of waiting is worth to the user, in dollars, if they said so.
        net: what B then gains a task.
    """
    take, text = _recommend(analysis, hour, net)
    return Verdict(take, text, _sure(analysis), _cautions(analysis))


def _recommend(analysis: Analysis, hour: float | None, net: Estimate | None) -> tuple[Take, str]:
    time, success = analysis.time, analysis.success
    if not analysis.pairs:
        return "undecided", "Undecided: no pair has been run yet."
    if success.verdict == "FAIL":
        return "A", (
            f"Keep A: B gets fewer tasks right, by {points(-success.difference.value)} ({success.only_a} tasks only A, "
            f"{success.only_b} only B), which is more than the margin of {points(success.margin)}."
        )
    if time.finding == "slower":
        return "A", f"Keep A: B is no faster; tasks run {factor(time.typical)} as fast there as in A."
    if time.finding == "open":
        return "undecided", (
            f"Undecided: after {time.typical.n} pairs, B's speed-up of {factor(time.typical)} may as well be none."
        )
    quicker = f"tasks run {factor(time.typical)} as fast there"
    if success.verdict == "UNDERPOWERED":
        return "B if", (
            f"B is faster ({quicker}), but that it gets as many tasks right is not shown: of {success.n} pairs "
            f"{success.only_a} were right in A only and {success.only_b} in B only. "
            f"If that is enough for you, take B{_price_clause(analysis)}."
        )
    if hour is not None and net is not None and not math.isnan(net.value):
        return _at_price(quicker, hour, net, analysis.unit)
    if math.isnan(analysis.money.extra.value):
        return "B if", f"Take B if its price suits you: {quicker}, with as many right. What it costs more is unknown."
    if analysis.money.an_hour.value == 0:
        return "B", f"Take B: {quicker}, with as many right, and it costs no more."
    return "B if", f"Take B{_price_clause(analysis)}: {quicker}, with as many right."


def _at_price(quicker: str, hour: float, net: Estimate, unit: str) -> tuple[Take, str]:
    gain = f"{amount_range(net, unit)} a task at {amount(hour, unit)} an hour"
    if net.low > 0:
        return "B", f"Take B: {quicker}, with as many right, and after its price it gains {gain}."
    if net.high < 0:
        return "A", f"Keep A: {quicker}, but after its price B loses {gain}."
    return "undecided", f"Undecided: {quicker}, with as many right, but after its price B may gain or lose: {gain}."


def _price_clause(analysis: Analysis) -> str:
    an_hour = analysis.money.an_hour
    if math.isnan(an_hour.value) or an_hour.value == 0:
        return ""
    if math.isinf(an_hour.value):
        return " (it costs more and saves no time on the whole)"
    return f" if an hour of waiting is worth more than {amount_range(an_hour, analysis.unit)} to you"


def _sure(analysis: Analysis) -> list[str]:
    time, success = analysis.time, analysis.success
    parts = []
    if time.finding == "open":
        low, high = time.always
        parts.append(
            f"Time: no difference found yet; at this look the speed-up is between {low:.3g} and {high:.3g} times."
        )
    else:
        parts.append(
            f"Time: found after {time.found_after} pairs by a test that may be looked at after every pair; it finds "
            "what is not there in at most 5 % of runs, ever."
        )
    end = "as planned" if analysis.is_complete else f"of {analysis.planned} planned, so that no PASS can be given yet"
    parts.append(
        f"Success: {success.verdict} with {success.n} pairs, {end}. B less A: {points(success.difference.value)} "
        f"({points(success.difference.low)} to {points(success.difference.high)}); PASS needs the lower bound of "
        f"{points(success.lower)} to be above {points(-success.margin)}, and is wrong in at most 5 %."
    )
    if success.verdict == "UNDERPOWERED":
        parts.append(_more_tasks(analysis))
    if not math.isnan(time.spread) and time.typical.n > 1:
        needed = planning.tasks_for_ratio(time.spread, 0.10)
        if needed > time.typical.n:
            parts.append(f"To know the speed-up to within 10 % takes {needed} pairs; there are {time.typical.n}.")
    return parts


def _more_tasks(analysis: Analysis) -> str:
    success = analysis.success
    disagree = (success.only_a + success.only_b) / success.n if success.n else 0.0
    at_least = planning.tasks_that_agree(success.margin)
    needed = max(planning.tasks_for_margin(success.margin, disagree), at_least)
    return (
        f"To show that B is no worse by {points(success.margin)} takes a run of about {needed:,} tasks, if the arms go "
        f"on to disagree on {100 * disagree:.3g} % of them and neither is better."
    )


def _cautions(analysis: Analysis) -> list[str]:
    cautions = []
    for arm in (analysis.a, analysis.b):
        if arm.fallbacks:
            cautions.append(
                f"{arm.fallbacks} of {arm.calls} calls of {arm.name} were served by another tier than asked for."
            )
        if arm.timeouts or arm.failures:
            cautions.append(
                f"{arm.name}: {arm.timeouts} runs were stopped by the limit on time and {arm.failures} failed; they "
                "count as not right, and their pairs are left out of the speed-up."
            )
        if arm.failed_calls:
            cautions.append(f"{arm.name}: {arm.failed_calls} of {arm.calls} calls failed.")
        if arm.unstreamed_calls:
            cautions.append(
                f"{arm.name}: {arm.unstreamed_calls} calls were not streamed; all of their time counts as output."
            )
        if arm.runs and not arm.calls:
            cautions.append(f"{arm.name} made no call through the gateway: does the workflow use OPENAI_BASE_URL?")
    if analysis.floor.finding != "open":
        cautions.append("A differs from A itself: something other than the arms decides. Do not trust the rest.")
    order = analysis.order
    if order.n > 1 and (order.low > 1.02 or order.high < 0.98):
        cautions.append(
            f"The second run of a pair takes {factor(order)} the time of the first: a cache that the first one warms, "
            "or load. Coins chose the order, so that it favours no arm, but it blurs the effect."
        )
    if analysis.floor.ratio.n == 0:
        cautions.append("There were no A/A pairs: how much two equal runs differ is not known.")
    return cautions
