"""The engine against itself and against plain fp32: are tokens the same bit for bit, however they are computed?

Greedy and sampled tokens of every prompt are made in one way first, alone on one thread, without drafts and without a
prefix cache. Every other way must give the same ones. Then the logits along those tokens are held against those of the
plain fp32 path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ultrafast.bench.verify.two_sample import effect
from ultrafast.bench.verify.verdict import CONFIDENCE, Level, Margins, Verdict, decide, skipped
from ultrafast.engine.engine import Engine
from ultrafast.engine.native import REFERENCE, supported_isas
from ultrafast.engine.tiers import DEFAULT, DEFAULT_TIERS, TIERS, Tiers
from ultrafast.types import GenerateRequest, SamplingParams

Progress = Callable[[str, int, int], None]
Texts = list[list[int]]

_FEWEST = 10  # prompts that a PASS rests on
_CROWD = 8  # requests at once


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute what is the same request.

    Attributes:
        crowd: requests at once.
        twice: asked a second time, when their beginnings are in the prefix cache, and drafts of what they said at hand.
    """

    name: str
    tier: str = DEFAULT
    threads: int = 1
    isa: str | None = None
    speculation: bool = False
    cache_mib: int = 0
    crowd: int = 1
    twice: bool = False


def ways(threads: int, isa: str) -> list[Way]:
    """All but the first, which the others are held against.

    Args:
        threads: the most to use.
        isa: the instruction set of the first way.
    """
    every: list[Way] = [Way("alone, one thread, no drafts, no cache")]
    every += [Way(f"tier {tier}", tier=tier, threads=threads, speculation=True, cache_mib=64) for tier in TIERS]
    every += [Way(f"{threads} threads", threads=threads)] * (threads > 1)
    every += [Way(f"{n} at once", crowd=n, threads=threads) for n in (2, _CROWD)]
    every += [
        Way("prefix cache, asked again", cache_mib=64, twice=True, threads=threads),
        Way("speculation, asked again", speculation=True, twice=True, threads=threads),
        Way("everything at once", speculation=True, cache_mib=64, crowd=_CROWD, twice=True, threads=threads),
    ]
    others = [other for other in supported_isas() if other not in (isa, "scalar")]  # that is for tests: slow
    every += [Way(f"instructions {other}", isa=other, threads=threads) for other in others]
    return every


@dataclass(frozen=True, slots=True)
class Compared:
    """One way against the first.

    Attributes:
        first_difference: the prompt and the token from which on they differ.
    """

    way: str
    answers: int
    tokens: int
    equal: int
    first_difference: tuple[str, int] | None


def bit_identity(
    model: str, prompts: Sequence[str], *, max_tokens: int, threads: int, progress: Progress
) -> tuple[Level, Texts]:
    """The level, and the greedy token ids of each prompt with its output, for `closeness`.

    Raises:
        UltrafastError: the model cannot be had, read or held in memory.
    """
    with Engine(model, threads=1) as engine:
        isa, asked = engine.isa, [_asks(engine, prompt, max_tokens) for prompt in prompts]
    first, *others = ways(threads, isa)
    progress(first.name, 0, 1 + len(others))
    with _engine(model, first) as engine:
        expected = _answers(engine, first, asked)
    compared = []
    for number, way in enumerate(others, 1):
        progress(way.name, number, 1 + len(others))
        with _engine(model, way) as engine:
            compared.append(_compare(way, prompts, expected, _answers(engine, way, asked)))
    progress("compared", 1 + len(others), 1 + len(others))
    texts = [[*requests[0].prompt_ids, *greedy] for requests, greedy in zip(asked, expected[0::2], strict=True)]
    return _identity(compared, len(prompts)), texts


def _asks(engine: Engine, prompt: str, max_tokens: int) -> tuple[GenerateRequest, GenerateRequest]:
    """Greedy and sampled."""
    message = [{"role": "user", "content": prompt}]
    ids = engine.encode_prompt(message if engine.tokenizer.chat_template else prompt)
    sampled = SamplingParams(max_tokens=max_tokens, temperature=1.0, top_p=0.95, seed=len(ids))
    return GenerateRequest(ids, SamplingParams(max_tokens=max_tokens)), GenerateRequest(ids, sampled)


@contextmanager
def _engine(model: str, way: Way) -> Iterator[Engine]:
    policies = {
        tier: replace(policy, speculation=way.speculation and (way.twice or policy.speculation))
        for tier, policy in DEFAULT_TIERS.policies.items()
    }
    tiers = Tiers(policies, DEFAULT_TIERS.share)
    with Engine(model, threads=way.threads, isa=way.isa, tiers=tiers, cache_mib=way.cache_mib) as engine:
        yield engine


def _answers(engine: Engine, way: Way, asked: Sequence[tuple[GenerateRequest, GenerateRequest]]) -> Texts:
    """Token ids of every request, greedy and sampled in turn; of the last time where they are asked twice."""
    requests = [replace(request, tier=way.tier) for both in asked for request in both]
    answers = _run(engine, requests, way.crowd)
    return _run(engine, requests, way.crowd) if way.twice else answers


def _run(engine: Engine, requests: Sequence[GenerateRequest], crowd: int) -> Texts:
    answers: Texts = [[] for _ in requests]
    for start in range(0, len(requests), crowd):
        running = {engine.add(requests[i]): i for i in range(start, min(start + crowd, len(requests)))}
        while engine.has_work:
            for sequence, delta in engine.step():
                if isinstance(delta, Exception):
                    raise delta
                answers[running[sequence]] += delta.token_ids
    return answers


def _compare(way: Way, prompts: Sequence[str], expected: Texts, actual: Texts) -> Compared:
    different = None
    for number, (a, b) in enumerate(zip(expected, actual, strict=True)):
        if a != b and different is None:
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            different = (prompts[number // 2], at)
    equal = sum(a == b for a, b in zip(expected, actual, strict=True))
    return Compared(way.name, len(actual), sum(map(len, actual)), equal, different)


def _identity(compared: Sequence[Compared], prompts: int) -> Level:
    broken = [way for way in compared if way.first_difference is not None]
    answers, tokens = sum(way.answers for way in compared), sum(way.tokens for way in compared)
    if broken:
        prompt, at = broken[0].first_difference or ("", 0)
        words = (
            f"{len(broken)} of {len(compared)} ways differ from the first; {broken[0].way!r} does after {at} tokens of "
            f"the answer to {prompt!r}."
        )
    else:
        words = (
            f"{answers:,} answers ({tokens:,} tokens, half of them sampled) in {len(compared)} ways are those of the "
            f"first way, bit for bit: fewer than {3 / prompts:.1%} of such prompts differ (95 % sure)."
        )
    return Level(
        "identity",
        "Bit identity",
        decide(different=bool(broken), within=prompts >= _FEWEST),
        words,
        "one token that differs is a FAIL; the engine is deterministic, so that no chance is in it",
        {"prompts": prompts, "ways": compared},
        "" if prompts >= _FEWEST else f"at least {_FEWEST} prompts",
    )


def closeness(model: str, texts: Texts, *, threads: int, margins: Margins, progress: Progress) -> Level:
    """KL divergence and top-1 agreement with the plain fp32 path, along the texts."""
    title = "Against fp32"
    if not texts:
        return skipped("reference", title, "no texts.")
    kls, same, logits = [], [], []
    with Engine(model, threads=threads) as engine:
        isa = engine.isa
        for number, ids in enumerate(texts):
            progress("fast kernels", number, 2 * len(texts))
            logits.append(engine.logits(ids))
    with Engine(model, threads=threads, isa=REFERENCE) as engine:
        for number, ids in enumerate(texts):
            progress("plain fp32", len(texts) + number, 2 * len(texts))
            reference = engine.logits(ids)
            kls.append(_kl(reference, logits[number]))
            same.append(float(np.mean(reference.argmax(axis=1) == logits[number].argmax(axis=1))))
    progress("compared", 2 * len(texts), 2 * len(texts))
    return _closeness(title, isa, np.array(kls), np.array(same), sum(map(len, texts)), margins)


def _kl(reference: npt.NDArray[np.float32], candidate: npt.NDArray[np.float32]) -> float:
    """Mean over positions, in nats, over the whole vocabulary; row by row, because the arrays are large."""
    return float(np.mean([_row_kl(*rows) for rows in zip(reference, candidate, strict=True)]))


def _row_kl(reference: npt.NDArray[np.float32], candidate: npt.NDArray[np.float32]) -> float:
    log_p, log_q = (_log_softmax(row.astype(np.float64)) for row in (reference, candidate))
    return float(np.sum(np.exp(log_p) * (log_p - log_q)))


def _log_softmax(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = row - row.max()
    return np.asarray(shifted - math.log(np.exp(shifted).sum()))


def _closeness(
    title: str,
    isa: str,
    kls: npt.NDArray[np.float64],
    same: npt.NDArray[np.float64],
    tokens: int,
    margins: Margins,
) -> Level:
    kl, flips = effect(kls, CONFIDENCE), effect(1 - same, CONFIDENCE)
    within = kl.high < margins.kl and flips.high < margins.top1 and len(kls) >= _FEWEST
    verdict = decide(different=kl.low > margins.kl or flips.low > margins.top1, within=within)
    return Level(
        "reference",
        title,
        verdict,
        f"Mean KL divergence of {isa} from plain fp32 over {tokens:,} tokens of {len(kls)} texts: {kl.value:.2g} nats, "
        f"at most {kl.high:.2g} ({margins.kl:g} allowed); the likeliest token is the same at {1 - flips.value:.2%} of "
        f"them, at least {1 - flips.high:.2%} ({1 - margins.top1:.0%} needed).",
        f"passes what lies at a margin in at most {1 - CONFIDENCE:.0%} of runs, and fails it in as many",
        {"kl": kl, "top1_differs": flips, "margins": {"kl": margins.kl, "top1": margins.top1}, "isa": isa},
        "" if verdict is not Verdict.UNDERPOWERED else "more prompts",
    )
