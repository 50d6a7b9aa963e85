"""Level 4: what agents notice: whether tools are called and how well, why answers end, and how long they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy import stats

from ultrafast.bench.client.call import Ask, Call
from ultrafast.bench.verify.arms import Arms, failed
from ultrafast.bench.verify.paired import Pairs, clean_pairs_needed, pairs_needed
from ultrafast.bench.verify.tool_asks import TOOLS, is_valid, names_called
from ultrafast.bench.verify.two_sample import Effect
from ultrafast.bench.verify.verdict import CONFIDENCE, SHARES, Level, Margins, decide, skipped

NAME, TITLE = "behaviour", "Tools, ends and lengths"

_POWER = 0.9
_CHECKS = 5  # that share what this level may spend


async def behaviour(arms: Arms, requests: Sequence[str], *, max_tokens: int, margins: Margins) -> Level:
    """Each request once of the second arm and twice of the first."""
    ways = (arms.first, arms.second, arms.first)
    asks = [
        (arm, Ask(text, max_tokens=max_tokens, temperature=0.0, tools=TOOLS, tool_choice="auto"))
        for text in requests
        for arm in ways
    ]
    calls = await arms.ask(NAME, asks)
    rows = [calls[i : i + 3] for i in range(0, len(calls), 3)]
    if not any(call.is_ok for call in calls):
        return skipped(NAME, TITLE, f"{failed(calls) or 'no requests'}.")
    whole = [row for row in rows if all(call.is_ok for call in row)]
    pairs = {
        "answered": Pairs.of([row[0].is_ok for row in rows], [row[1].is_ok for row in rows]),
        "tools chosen": _agreement(whole, lambda call: names_called(call.tool_calls)),
        "ends": _agreement(whole, lambda call: call.finish_reason),
        "valid calls": Pairs.of([_no_invalid(row[0]) for row in whole], [_no_invalid(row[1]) for row in whole]),
    }
    return _level(pairs, whole, margins, failed(calls))


def _agreement(rows: Sequence[Sequence[Call]], of: Callable[[Call], object]) -> Pairs:
    """Whether the first arm's answer is like its own other one, against whether it is like the second arm's."""
    return Pairs.of([of(row[0]) == of(row[2]) for row in rows], [of(row[0]) == of(row[1]) for row in rows])


def _no_invalid(call: Call) -> bool:
    return all(map(is_valid, call.tool_calls))


def ratio_of_means(first: Sequence[float], second: Sequence[float], confidence: float) -> Effect:
    """Mean of the second over mean of the first, pair by pair, with one-sided bounds (delta method)."""
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    n = len(a)
    if n < 2 or a.sum() <= 0:
        return Effect(math.nan, 0.0, math.inf)
    ratio = float(b.sum() / a.sum())
    reach = float(stats.t.ppf(confidence, n - 1) * (b - ratio * a).std(ddof=1)) / (math.sqrt(n) * float(a.mean()))
    return Effect(ratio, ratio - reach, ratio + reach)


def _length(rows: Sequence[Sequence[Call]], confidence: float) -> Effect | None:
    """``None`` where token counts are not known."""
    counts = [(row[0].output_tokens, row[1].output_tokens) for row in rows]
    known = [(a, b) for a, b in counts if a is not None and b is not None]
    return ratio_of_means([a for a, _ in known], [b for _, b in known], confidence) if known else None


def _level(pairs: Mapping[str, Pairs], rows: Sequence[Sequence[Call]], margins: Margins, trouble: str) -> Level:
    margin, share = margins.points / 100, SHARES[NAME] / _CHECKS
    lows = {name: pair.lower(CONFIDENCE) for name, pair in pairs.items()}
    different = [name for name, pair in pairs.items() if pair.p_worse() <= share and lows[name] <= -margin]
    undecided = [name for name, low in lows.items() if low <= -margin and name not in different]
    length, strict = _length(rows, CONFIDENCE), _length(rows, 1 - share)
    band = (1 - margins.length, 1 + margins.length)
    if length is not None and strict is not None:
        if strict.low > band[1] or strict.high < band[0]:
            different.append("lengths")
        elif not band[0] < length.low <= length.high < band[1]:
            undecided.append("lengths")
    needed = max(
        clean_pairs_needed(margin),
        *(pairs_needed(margin, pair.discordant, power=_POWER) for pair in pairs.values() if pair.n),
    )
    return Level(
        NAME,
        TITLE,
        decide(different=bool(different), within=not undecided),
        f"{_words(pairs, rows, lows, length, margins)} {trouble}".strip(),
        f"calls equal arms different in at most {SHARES[NAME]:.0%} of runs, over its {_CHECKS} checks; passes an arm "
        f"that is {margins.points:g} points behind in one of them in at most {1 - CONFIDENCE:.0%}",
        {
            "pairs": pairs,
            "lower_bounds": lows,
            "margin": -margin,
            "length_ratio": length,
            "length_band": band,
            "different": different,
            "undecided": undecided,
            "called": _called(rows),
        },
        f"{needed:,} requests, for a power of {_POWER:.0%} on {', '.join(undecided)}" if undecided else "",
    )


def _called(rows: Sequence[Sequence[Call]]) -> int:
    return sum(bool(row[0].tool_calls) for row in rows)


def _words(
    pairs: Mapping[str, Pairs],
    rows: Sequence[Sequence[Call]],
    lows: Mapping[str, float],
    length: Effect | None,
    margins: Margins,
) -> str:
    """One sentence about each check."""
    parts = [
        f"{name} {pair.lost} of {pair.n} lost and {pair.won} won, at most {-100 * lows[name]:.1f} points behind"
        for name, pair in pairs.items()
    ]
    known = (
        ""
        if length is None
        else (
            f" Answers are {length.value:.2f} times as long ({length.low:.2f} to {length.high:.2f}; "
            f"{1 - margins.length:.2f} to {1 + margins.length:.2f} allowed)."
        )
    )
    counted = f"The first arm calls tools in {_called(rows)} of {len(rows)} requests. "
    return f"{counted}{'; '.join(parts)} ({margins.points:g} allowed).{known}"
