"""Levels 1 and 2: at temperature 0, where do the texts part, and how far are the probabilities from each other?

Each prompt is asked five times: by the first arm plainly and twice with log-probabilities, by the second plainly and
once with them (without, where they are not offered: twice by each). That an arm differs from itself is the floor.
Along a beginning that two answers share, their log-probabilities are of the same context, and can be compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from ultrafast.bench.client.call import Ask, Call
from ultrafast.bench.verify.arms import Arms, answer_of, failed
from ultrafast.bench.verify.configuration import TOP_LOGPROBS
from ultrafast.bench.verify.paired import excess_bounds
from ultrafast.bench.verify.partings import Parting, Tokens, text_parting, tokens_of
from ultrafast.bench.verify.two_sample import Effect, effect
from ultrafast.bench.verify.verdict import CONFIDENCE, SHARES, Level, Margins, decide, skipped

NAME, TITLE = "greedy", "Greedy tokens"
NAME_2, TITLE_2 = "logprobs", "Log-probabilities"

FEWEST = 20  # prompts that a PASS rests on: what deviates on a seventh of all prompts shows up among them (95 %)
_NOISE = 3.0  # times the largest movement that the first arm showed against itself is still noise
_SURE = 1 - 1e-5  # probability of the chosen token; where nearly all are as sure, they are the sampler's


async def greedy(
    arms: Arms, prompts: Sequence[str], *, max_tokens: int, logprobs: bool, margins: Margins
) -> tuple[Level, Level]:
    """Both levels."""
    plain, chances = (Ask("", max_tokens=max_tokens, temperature=0.0, top_logprobs=top) for top in (None, TOP_LOGPROBS))
    second_kind = chances if logprobs else plain
    ways = [(arms.first, plain), (arms.first, second_kind), (arms.second, plain), (arms.second, second_kind)]
    if logprobs:
        ways.append((arms.first, second_kind))
    asks = [(arm, _with(ask, prompt)) for prompt in prompts for arm, ask in ways]
    calls = await arms.ask(NAME, asks)
    rows = [calls[i : i + len(ways)] for i in range(0, len(calls), len(ways))]
    whole = [(prompt, row) for prompt, row in zip(prompts, rows, strict=True) if all(call.is_ok for call in row)]
    trouble = failed(calls)
    if logprobs and not _are_the_models([call for _, row in whole for call in row[1:2]]):
        logprobs = False
    if not whole:
        return skipped(NAME, TITLE, f"{trouble}."), skipped(NAME_2, TITLE_2, "no answers to compare.")
    if not logprobs:
        level = _by_text(whole, margins, trouble)
        return level, skipped(NAME_2, TITLE_2, "not offered by both arms, or not those of the model.")
    across = [tokens_of(prompt, row[1], row[3]) for prompt, row in whole]
    floor = [tokens_of(prompt, row[1], row[4]) for prompt, row in whole]
    return _by_tokens(whole, across, floor, margins, trouble), _by_chances(across, floor, margins)


def _with(ask: Ask, prompt: str) -> Ask:
    return Ask(prompt, ask.max_tokens, ask.temperature, top_logprobs=ask.top_logprobs)


def _are_the_models(calls: Sequence[Call]) -> bool:
    """Some servers give the sampler's probabilities: at temperature 0 all is sure, and every tie looks decided."""
    chosen = [math.exp(token.logprob) for call in calls for token in call.logprobs]
    return bool(chosen) and sum(p > _SURE for p in chosen) < 0.9 * len(chosen)


def _by_tokens(
    whole: Sequence[tuple[str, Sequence[Call]]],
    across: Sequence[Tokens],
    floor: Sequence[Tokens],
    margins: Margins,
    trouble: str,
) -> Level:
    """With log-probabilities: where texts part between tokens that were as likely, rounding turned a tie."""
    limit = max(margins.tie, _NOISE * max(tokens.moved for tokens in floor))
    partings = [tokens.parting for tokens in across if tokens.parting]
    steady = {prompt for prompt, row in whole if _is_steady(row)}
    real = [p for p in partings if p.moved is not None and p.moved > limit and p.prompt in steady]
    return _level(
        whole,
        real=real,
        ties=len([p for p in partings if p.moved is not None and p.moved <= limit]),
        partings=partings,
        exposure=(sum(t.compared for t in across), sum(t.compared for t in floor)),
        floor_events=sum(t.parting is not None for t in floor),
        limit=limit,
        margins=margins,
        trouble=trouble,
    )


def _by_text(whole: Sequence[tuple[str, Sequence[Call]]], margins: Margins, trouble: str) -> Level:
    """Without: nothing tells a tie from a real difference but how often there is one."""
    across = [text_parting(prompt, row[0], row[2]) for prompt, row in whole]
    floor = [text_parting(prompt, row[0], row[1]) for prompt, row in whole]
    return _level(
        whole,
        real=[],
        ties=None,
        partings=[parting for parting, _ in across if parting],
        exposure=(sum(tokens for _, tokens in across), sum(tokens for _, tokens in floor)),
        floor_events=sum(parting is not None for parting, _ in floor),
        limit=None,
        margins=margins,
        trouble=trouble,
    )


def _is_steady(row: Sequence[Call]) -> bool:
    """Whether each arm repeats itself."""
    first, second = {answer_of(row[0]), answer_of(row[1])}, {answer_of(row[2]), answer_of(row[3])}
    return len(first) == len(second) == 1


def _level(
    whole: Sequence[tuple[str, Sequence[Call]]],
    *,
    real: Sequence[Parting],
    ties: int | None,
    partings: Sequence[Parting],
    exposure: tuple[float, float],
    floor_events: int,
    limit: float | None,
    margins: Margins,
    trouble: str,
) -> Level:
    tokens, floor_tokens = exposure
    low, _ = excess_bounds(len(partings), tokens, floor_events, floor_tokens, 1 - SHARES[NAME])
    _, high = excess_bounds(len(partings), tokens, floor_events, floor_tokens, CONFIDENCE)
    n = len(whole)
    same = Counter({"self": 0, "across": 0})
    for _, row in whole:
        same["self"] += answer_of(row[0]) == answer_of(row[1])
        same["across"] += answer_of(row[0]) == answer_of(row[2])
    verdict = decide(different=bool(real) or low > margins.top1, within=high < margins.top1 and n >= FEWEST)
    kinds = f": {len(real)} real, {ties} ties" if ties is not None else ""
    words = (
        f"{same['across']} of {n} answers are equal between the arms, {same['self']} of {n} between two of the first; "
        f"{len(partings)} part in {tokens:,.0f} tokens{kinds}. {_located(real)}"
    )
    return Level(
        NAME,
        TITLE,
        verdict,
        f"{words.strip()} {trouble}".strip(),
        f"calls equal arms different in at most {SHARES[NAME]:.1%} of runs; passes arms that differ at "
        f"{margins.top1:.0%} of tokens in at most {1 - CONFIDENCE:.0%}",
        {
            "prompts": n,
            "equal": same["across"] / n,
            "equal_to_itself": same["self"] / n,
            "excess_per_token": {"low": low, "high": high, "margin": margins.top1},
            "tie_limit_nats": limit,
            "real": real,
            "ties": ties,
            "partings": partings,
        },
        f"at least {FEWEST} prompts" if high < margins.top1 else f"more prompts: up to {high:.1%} of tokens may differ",
    )


def _located(real: Sequence[Parting]) -> str:
    if not real:
        return ""
    worst = max(real, key=lambda parting: parting.moved or 0.0)
    return (
        f"After {worst.at} tokens of the answer to {worst.prompt!r} they go on with {worst.first!r} and "
        f"{worst.second!r}, whose odds moved by {worst.moved:.2f} nats: no tie."
    )


def _by_chances(across: Sequence[Tokens], floor: Sequence[Tokens], margins: Margins) -> Level:
    excess = np.array([a.kl - f.kl for a, f in zip(across, floor, strict=True)])
    strict, usual = effect(excess, 1 - SHARES[NAME_2]), effect(excess, CONFIDENCE)
    own = float(np.mean([tokens.kl for tokens in floor]))
    within = usual.high < margins.kl and len(across) >= FEWEST
    return Level(
        NAME_2,
        TITLE_2,
        decide(different=strict.low > margins.kl, within=within),
        f"Mean KL divergence {usual.value + own:.2g} nats a token between the arms, {own:.2g} within the first; "
        f"the excess is at most {usual.high:.2g}, where {margins.kl:g} are allowed. The probability of a chosen token "
        f"changes by at most {max(tokens.change for tokens in across):.2g}.",
        f"calls equal arms different in at most {SHARES[NAME_2]:.1%} of runs; passes a divergence of {margins.kl:g} in "
        f"at most {1 - CONFIDENCE:.0%}",
        _kl_figures(usual, own, across, margins),
        "" if within else f"at least {FEWEST} prompts, and so many that the bound falls below the margin",
    )


def _kl_figures(excess: Effect, own: float, across: Sequence[Tokens], margins: Margins) -> Mapping[str, object]:
    return {
        "excess_kl": excess,
        "own_kl": own,
        "margin": margins.kl,
        "tokens": sum(tokens.compared for tokens in across),
        "largest_change": max(tokens.change for tokens in across),
    }
