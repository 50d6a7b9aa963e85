"""Level 3: texts sampled at temperature 1: one distribution or two?"""

from __future__ import annotations

from collections.abc import Sequence

from ultrafast.bench.client.call import Ask, Call
from ultrafast.bench.verify.arms import Arm, Arms, answer_of, failed
from ultrafast.bench.verify.two_sample import Comparison, compare
from ultrafast.bench.verify.verdict import CONFIDENCE, SHARES, Level, Margins, decide, skipped

NAME, TITLE = "samples", "Sampled texts"

_KEPT = 0.8  # of the samples of a prompt: with fewer answers it is left out
_FEWEST = 10  # prompts that a PASS rests on
_OWN = 0.002  # p at or below which the first arm differs from itself


async def samples(arms: Arms, prompts: Sequence[str], *, each: int, max_tokens: int, margins: Margins) -> Level:
    """Ask each prompt so many times of each arm.

    Every call has a seed of its own: without any, some servers use the same one each time, and with common ones an arm
    would repeat the other's luck.
    """
    sides = [(prompt, arm) for prompt in prompts for arm in (arms.first, arms.second)]
    asks: list[tuple[Arm, Ask]] = [
        (arm, Ask(prompt, max_tokens=max_tokens, temperature=1.0, seed=1 + arms.seed * 1_000_003 + number * each + i))
        for number, (prompt, arm) in enumerate(sides)
        for i in range(each)
    ]
    calls = await arms.ask(NAME, asks)
    groups = [calls[i : i + each] for i in range(0, len(calls), each)]
    first, second = _usable(groups[0::2], groups[1::2], each)
    if len(first) < 2:
        return skipped(NAME, TITLE, failed(calls) or "too few prompts or samples.")
    across = compare(first, second, seed=arms.seed, confidence=CONFIDENCE)
    half = len(first[0]) // 2
    own = compare([t[:half] for t in first], [t[half : 2 * half] for t in first], seed=arms.seed) if half > 1 else None
    return _level(across, own, margins, failed(calls))


def _usable(
    first: Sequence[Sequence[Call]], second: Sequence[Sequence[Call]], each: int
) -> tuple[list[list[str]], list[list[str]]]:
    """The texts of the prompts that nearly always got an answer, equally many of each."""
    pairs = [
        ([answer_of(call) for call in a if call.is_ok], [answer_of(call) for call in b if call.is_ok])
        for a, b in zip(first, second, strict=True)
    ]
    kept = [pair for pair in pairs if min(map(len, pair)) >= max(2, _KEPT * each)]
    if not kept:
        return [], []
    size = min(min(map(len, pair)) for pair in kept)
    return [a[:size] for a, _ in kept], [b[:size] for _, b in kept]


def _level(across: Comparison, own: Comparison | None, margins: Margins, trouble: str) -> Level:
    share = SHARES[NAME]
    noisy = own is not None and own.p <= _OWN
    shift = max(across.commonness.high, -across.commonness.low)
    within = (
        across.agreement.high < margins.agreement
        and shift < margins.commonness
        and across.prompts >= _FEWEST
        and not noisy
    )
    different = across.p <= share and not noisy
    words = (
        f"{across.prompts} prompts, {across.samples} texts each and arm: p = {across.p:.3g} that both come from one "
        f"distribution. Texts of one arm agree in {sum(across.within) / 2:.2%} of characters, across the arms in "
        f"{across.across:.2%}: at most {max(0.0, across.agreement.high):.2%} are lost ({margins.agreement:.1%} "
        f"allowed); their pieces are {across.commonness.value:+.2f} standard deviations more common, at most "
        f"{shift:.2f} either way ({margins.commonness:g} allowed)."
    )
    if noisy and own is not None:
        words += f" The first arm differs from itself (p = {own.p:.3g}): its texts depend on when they are asked."
    return Level(
        NAME,
        TITLE,
        decide(different=different, within=within),
        f"{words} {trouble}".strip(),
        f"calls equal arms different in {share:.0%} of runs; passes a difference as large as the margins in at most "
        f"{1 - CONFIDENCE:.0%}",
        {"across": across, "own": own, "margins": {"agreement": margins.agreement, "commonness": margins.commonness}},
        "" if within else "more samples a prompt, or more prompts: see `ultrafast verify plan`",
    )
