"""Does the speed fit the tier that answers say served them?

Calls of both arms in pairs, one right after the other in random order, while the tool itself may load the first arm.
What is tested is what an answer *says* (its echo): calls that openly say another tier are no lie, but counted apart.

A tier may be quicker in output speed after the first chunk, or in time to first token. It is accused where both are
shown to be less than what it must at least give: what the user knows to be promised, else `LEAST_SPEED` and
`LEAST_START`, and then only where the load is shown to slow the first arm down as much; it passes where one of them is
shown to be more. On an idle engine the plain tier may honestly be as fast, so that nothing can be told.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ultrafast.bench.client.call import Ask, Call
from ultrafast.bench.statistics import Estimate, describe, median, needed_for, quantile
from ultrafast.bench.verify.arms import Arm, Arms, failed
from ultrafast.bench.verify.verdict import CONFIDENCE, SHARES, Level, Verdict, skipped

NAME, TITLE = "tier", "Tier honesty"

LEAST_SPEED, LEAST_START = 1.25, 2.0
"""How many times as fast a faster tier writes, or begins, where the load slows others down and nothing is promised. A
tier that is only let in sooner gains far more than half of the wait."""

_IDLE_CALLS = 12
_LOAD_TOKENS = 512  # of each call that makes load
_SLOW = 0.2  # share of the calls that may be slow before the tier is called downgraded in part


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times as fast the second arm is: the median over pairs, and its bounds at both confidences.

    Attributes:
        usual: at `CONFIDENCE`, one-sided each; what PASS rests on.
        strict: at the level's share of errors; what an accusation rests on.
    """

    usual: Estimate
    strict: Estimate


async def honesty(
    arms: Arms, prompts: Sequence[str], *, pairs: int, max_tokens: int, load: int, promised: float | None
) -> Level:
    """Measure in pairs.

    Args:
        load: streams that the first arm is kept busy with meanwhile.
        promised: how many times as fast the second arm's tier is said to write, under any load.
    """
    tier = arms.second.tier
    if tier is None:
        return skipped(NAME, TITLE, "no tier is asked for.")
    idle = await _calls(arms, [(arms.first, f"0.{i}") for i in range(_IDLE_CALLS)], prompts, max_tokens) if load else []
    rng = random.Random(arms.seed)
    order = [rng.sample((arms.first, arms.second), 2) for _ in range(pairs)]
    plan = [(arm, f"{number}.{place}") for number, pair in enumerate(order, 1) for place, arm in enumerate(pair)]
    async with _load(arms.first, prompts, load):
        calls = await _calls(arms, plan, prompts, max_tokens)
    rows = [
        (calls[2 * i], calls[2 * i + 1]) if pair[0] is arms.first else (calls[2 * i + 1], calls[2 * i])
        for i, pair in enumerate(order)
    ]
    return _judge(rows, idle, tier=tier, load=load, promised=promised)


async def _calls(arms: Arms, plan: Sequence[tuple[Arm, str]], prompts: Sequence[str], max_tokens: int) -> list[Call]:
    """One after another: they are to share the engine with the load, and not with each other. What each prompt begins
    with keeps a cache from knowing it."""
    calls = []
    for done, (arm, mark) in enumerate(plan):
        arms.progress(NAME, done, len(plan))
        text = f"({arms.seed}.{mark}) {prompts[done // 2 % len(prompts)]}"
        call = await arm.asker.call(
            Ask(text, max_tokens=max_tokens, temperature=1.0, seed=1 + done), id=f"{NAME}-{mark}"
        )
        arms.on_call(NAME, call)
        calls.append(call)
    arms.progress(NAME, len(plan), len(plan))
    return calls


@asynccontextmanager
async def _load(arm: Arm, prompts: Sequence[str], streams: int) -> AsyncIterator[None]:
    """So many streams without end."""

    async def stream(number: int) -> None:
        turn = 0
        while True:
            prompt = f"({number}.{turn}) {prompts[(number + turn) % len(prompts)]}"
            await arm.asker.call(Ask(prompt, max_tokens=_LOAD_TOKENS, temperature=1.0), id=f"load-{number}-{turn}")
            await asyncio.sleep(0)
            turn += 1

    tasks = [asyncio.create_task(stream(number)) for number in range(streams)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _judge(
    rows: Sequence[tuple[Call, Call]], idle: Sequence[Call], *, tier: str, load: int, promised: float | None
) -> Level:
    share = SHARES[NAME] / 2  # of accusations in whole and in part
    claimed = [(a, b) for a, b in rows if a.is_ok and b.is_ok and b.tier_served == tier and a.tier_served != tier]
    said = [call.tier_served for _, call in rows if call.is_ok]
    openly = sum(other is not None and other != tier for other in said)
    output = _speedup([(b.output_speed, a.output_speed) for a, b in claimed], share)
    start = _speedup([(a.ttft_s, b.ttft_s) for a, b in claimed], share)
    facts: dict[str, object] = {
        "pairs": len(rows),
        "claimed": len(claimed),
        "openly_other": openly,
        "without_echo": said.count(None),
        "output_speedup": output.usual,
        "start_speedup": start.usual,
        "load": load,
        "promised": promised,
    }
    least = promised or LEAST_SPEED
    echo = _echo_words(tier, said, openly)
    measured = f"Output is {describe(output.usual)} times as fast, answers begin {describe(start.usual)} times as soon."
    if 2 * openly > len(said):
        return _level(Verdict.FAIL, f"Openly downgraded: {echo} {measured}", facts)
    if len(claimed) < needed_for(0.5, 1 - 2 * share):
        why = failed([call for row in rows for call in row]) or "more pairs"
        return _level(
            Verdict.UNDERPOWERED,
            f"Cannot tell: {echo} {measured}",
            facts,
            why if not said.count(None) else "answers that say which tier served them",
        )
    slowed = _slowed(idle, [a for a, _ in claimed])
    facts["load_slows_first_arm"] = slowed
    comparable = promised is not None or slowed
    if comparable and _is_below(output, least) and _is_below(start, max(least, LEAST_START)):
        return _level(Verdict.FAIL, f"Silently downgraded: {echo} Yet {_lower(measured)}", facts)
    if _slow_part(claimed, least, share):
        return _level(
            Verdict.FAIL,
            f"Silently downgraded in part: {echo} Some are faster, yet the slowest {_SLOW:.0%} of them are no faster "
            f"than those of the first arm. {measured}",
            facts,
        )
    if output.usual.low > least or (promised is None and start.usual.low > LEAST_START):
        return _level(Verdict.PASS, f"The speed fits: {echo} {measured}", facts)
    why = (
        ""
        if comparable
        else (
            " The load did not slow the first arm down: on an idle engine every tier may be as fast."
            if load
            else " Nothing was made to slow the first arm down, and nothing is promised."
        )
    )
    return _level(
        Verdict.UNDERPOWERED,
        f"Cannot tell: {echo} {measured}{why}",
        facts,
        "more pairs" if comparable else "more load (--load), or what the tier promises (--promised-speedup)",
    )


def _level(verdict: Verdict, words: str, facts: Mapping[str, object], needed: str = "") -> Level:
    return Level(
        NAME,
        TITLE,
        verdict,
        words,
        f"accuses a tier that gives what it must in at most {SHARES[NAME]:.1%} of runs; passes one that gives "
        f"less in at most {2 * (1 - CONFIDENCE):.0%}",
        facts,
        needed,
    )


def _speedup(pairs: Sequence[tuple[float | None, float | None]], share: float) -> Speedup:
    """Of the quotients, where both were measured."""
    ratios = [over / under for over, under in pairs if over is not None and under is not None and under > 0]
    return Speedup(median(ratios, 2 * CONFIDENCE - 1), median(ratios, 1 - 2 * share))


def _is_below(speedup: Speedup, least: float) -> bool:
    """Whether it is shown to be less; what could not be measured defends nobody."""
    return speedup.strict.n == 0 or speedup.strict.high < least


def _slowed(idle: Sequence[Call], loaded: Sequence[Call]) -> bool:
    """Whether the load is shown to slow calls down by as much as a faster tier must be spared."""

    def speeds(calls: Sequence[Call]) -> list[float]:
        return [speed for call in calls if (speed := call.output_speed) is not None]

    def starts(calls: Sequence[Call]) -> list[float]:
        return [call.ttft_s for call in calls if call.ttft_s is not None]

    if not idle or not loaded:
        return False
    before, now = median(speeds(idle)), median(speeds(loaded))
    began, begins = median(starts(idle)), median(starts(loaded))
    return before.low > LEAST_SPEED * now.high or begins.low > LEAST_START * began.high


def _slow_part(rows: Sequence[tuple[Call, Call]], least: float, share: float) -> bool:
    """Whether the slow calls of the second arm are shown to be no faster than the slow ones of the first, while its
    fast ones are: a tier that only begins sooner has no fast ones."""
    first = [speed for a, _ in rows if (speed := a.output_speed) is not None]
    second = [speed for _, b in rows if (speed := b.output_speed) is not None]
    slow, quick = ([quantile(calls, q, 1 - 2 * share) for calls in (first, second)] for q in (_SLOW, 1 - _SLOW))
    return _ratio_high(*slow) < least and quick[1].low > least * quick[0].high


def _ratio_high(under: Estimate, over: Estimate) -> float:
    """Upper bound of a quotient of independent estimates: square-and-add, on logarithms (Zou and Donner 2008)."""
    if min(under.low, over.value) <= 0 or math.inf in (over.high, -under.low):
        return math.inf
    reach = math.hypot(math.log(over.high / over.value), math.log(under.value / under.low))
    return over.value / under.value * math.exp(reach)


def _echo_words(tier: str, said: Sequence[str | None], openly: int) -> str:
    claims = sum(other == tier for other in said)
    parts = [f"{claims} of {len(said)} answers say {tier}"]
    if openly:
        others = ", ".join(sorted({other for other in said if other not in (None, tier)}, key=str))
        parts.append(f"{openly} say {others}")
    if said.count(None):
        parts.append(f"{said.count(None)} do not say")
    return f"{', '.join(parts)}."


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]
