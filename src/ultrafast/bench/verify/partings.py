"""Two answers to one prompt, token by token, as far as they share their context."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ultrafast.bench.client.call import Call, TokenChance
from ultrafast.bench.verify.arms import answer_of


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two answers part.

    Attributes:
        at: tokens before it, or characters where tokens are not known.
        moved: nats by which the odds of the two tokens differ between the answers; ``None`` where it is not known.
    """

    prompt: str
    at: int
    first: str
    second: str
    moved: float | None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Two answers along their common beginning.

    Attributes:
        compared: tokens in the same context: the common ones, and the one at which they part.
        kl: nats a token, from the first to the second; at least, since only the likeliest tokens are known.
        moved: the largest change of the odds between the first's two likeliest tokens.
        change: the largest change of a chosen token's probability.
    """

    compared: int
    parting: Parting | None
    kl: float
    moved: float
    change: float


def tokens_of(prompt: str, first: Call, second: Call) -> Tokens:
    """Compare two answers token by token, as far as they share their context."""
    a, b = first.logprobs, second.logprobs
    common = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x.token != y.token), None)
    compared = min(len(a), len(b)) if common is None else common + 1
    pairs = list(zip(a[:compared], b[:compared], strict=True))
    parting = None
    if common is not None:
        parting = Parting(prompt, common, a[common].token, b[common].token, _moved_between(a[common], b[common]))
    elif len(a) != len(b):  # one ended: the end is no token that is shown
        longer = max(a, b, key=len)[compared].token
        parting = Parting(prompt, compared, *(("", longer) if len(a) < len(b) else (longer, "")), None)
    return Tokens(
        compared,
        parting,
        float(np.mean([_kl(x, y) for x, y in pairs])) if pairs else 0.0,
        max((_movement(x, y) for x, y in pairs), default=0.0),
        max((abs(math.exp(x.logprob) - _probability(y, x.token)) for x, y in pairs), default=0.0),
    )


def _moved_between(x: TokenChance, y: TokenChance) -> float | None:
    """Each answer's own token is the likelier one there; how far the odds moved is the sum of both leads."""
    leads = [_lead(x, x.token, y.token), _lead(y, y.token, x.token)]
    return None if None in leads else sum(lead for lead in leads if lead is not None)


def _lead(chance: TokenChance, token: str, other: str) -> float | None:
    """Of a token over another; at least, where the other is not among the likeliest."""
    if not chance.top:
        return None
    return max(0.0, _logprob(chance, token) - _logprob(chance, other))


def _logprob(chance: TokenChance, token: str) -> float:
    if token == chance.token:
        return chance.logprob
    return chance.top.get(token, min(chance.top.values(), default=chance.logprob))


def _probability(chance: TokenChance, token: str) -> float:
    return math.exp(_logprob(chance, token))


def _movement(x: TokenChance, y: TokenChance) -> float:
    best = sorted(x.top, key=lambda token: -x.top[token])[:2]
    if len(best) < 2 or any(token not in y.top for token in best):
        return 0.0
    return abs((x.top[best[0]] - x.top[best[1]]) - (y.top[best[0]] - y.top[best[1]]))


def _kl(x: TokenChance, y: TokenChance) -> float:
    """KL divergence over the tokens that both name, each of whose terms ``p log(p/q) - p + q`` is at least 0: what is
    left out makes it smaller, and never larger, than the true one."""
    both = [(x.top[token], y.top[token]) for token in x.top if token in y.top]
    return sum(math.exp(p) * (p - q - 1) + math.exp(q) for p, q in both)


def text_parting(prompt: str, first: Call, second: Call) -> tuple[Parting | None, float]:
    """Where two texts part, and the tokens compared until there, by the share of the text."""
    a, b = answer_of(first), answer_of(second)
    common = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    tokens = first.output_tokens or max(1, len(a) // 4)  # English has about four characters a token
    if common == len(a) == len(b):
        return None, tokens
    share = common / max(1, len(a))
    return Parting(prompt, common, a[common : common + 12], b[common : common + 12], None), 1 + share * (tokens - 1)
