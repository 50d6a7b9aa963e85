"""Random requests of every kind, what each must answer, and an engine that is too small for them.

::

    expected = Solo(path)
    for request in Mix(random.Random(1), expected).requests(100):
        ...  # and whatever else runs: the answer is expected(request)
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ultrafast import Engine
from ultrafast.engine import memory
from ultrafast.engine.tiers import DEFAULT_TIERS, TIERS, Tiers
from ultrafast.types import FinishReason, GenerateRequest, SamplingParams, TokenDelta, TokenLogprob

CONTEXT = 512
GRAMMARS = ["start: /[0-9]{1,70}/", 'start: "\\"" /[a-z ,.]*/ "\\""', "start: /(?s:.*)/"]
SLOTS = dict(zip(TIERS, (2, 2, 3, 2), strict=True))


def crowded_engine(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    slots: Mapping[str, int] = SLOTS,
    num_blocks: int = 14,  # a full context is 8
    threads: int = 1,
) -> Engine:
    """An engine with few slots and fewer KV blocks: requests wait, are preempted, and evict what is cached."""
    policies = {
        tier: replace(policy, slots=slots[tier], speculation=True) for tier, policy in DEFAULT_TIERS.policies.items()
    }
    with monkeypatch.context() as patch:
        patch.setattr(memory, "plan_kv_blocks", lambda *_, **__: num_blocks)
        return Engine(path, tiers=Tiers(policies), context=CONTEXT, threads=threads)


@dataclass
class Answer:
    """All deltas of one request so far."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    def add(self, delta: TokenDelta) -> None:
        assert self.finish_reason is None
        self.text += delta.text
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs or ()
        self.prompt_logprobs += delta.prompt_logprobs or ()
        self.finish_reason = delta.finish_reason

    def starts(self, whole: Answer) -> bool:
        """Whether ``whole`` goes on from here."""
        count = len(self.token_ids)
        return (
            whole.text.startswith(self.text)
            and whole.token_ids[:count] == self.token_ids
            and whole.logprobs[: len(self.logprobs)] == self.logprobs
            and whole.prompt_logprobs[: len(self.prompt_logprobs)] == self.prompt_logprobs
        )


def answers(engine: Engine, requests: list[GenerateRequest]) -> list[Answer]:
    """Ask all at once, step until the engine is idle."""
    found = {engine.add(request): Answer() for request in requests}
    while engine.has_work:
        for sequence, delta in engine.step():
            if sequence in found:
                found[sequence].add(delta)
    return list(found.values())


class Solo:
    """Answers a request on an engine of its own: nothing beside it, nothing cached, nothing drafted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        policies = {tier: replace(policy, speculation=False) for tier, policy in DEFAULT_TIERS.policies.items()}
        self._tiers = Tiers(policies)
        self.vocab_size = self._open().shape.vocab_size

    def _open(self) -> Engine:
        return Engine(self._path, threads=1, context=CONTEXT, cache_mib=0, tiers=self._tiers)

    def __call__(self, request: GenerateRequest) -> Answer:
        with self._open() as engine:
            (answer,) = answers(engine, [replace(request, tier="default", prediction=())])
        return answer


class Mix:
    """Makes requests that have beginnings in common, that go on from earlier answers, and that predict their own."""

    def __init__(self, rng: random.Random, solo: Solo) -> None:
        self._rng = rng
        self._solo = solo
        self._texts = [self._tokens(CONTEXT) for _ in range(3)]

    def requests(self, count: int) -> Iterator[tuple[GenerateRequest, Answer]]:
        """Pairs of a request and what it must answer."""
        for _ in range(count):
            rng = self._rng
            request = GenerateRequest(
                self._prompt(),
                self._params(),
                rng.choice(TIERS),
                cache_salt=rng.choice(["", "", "salt"]),
                grammar=rng.choice(GRAMMARS) if rng.random() < 0.3 else None,
                prompt_logprobs=rng.choice([0, 2]) if rng.random() < 0.2 else None,
            )
            if request.prompt_logprobs is not None and rng.random() < 0.3:
                request = replace(request, params=replace(request.params, max_tokens=0))
            answer = self._solo(request)
            if len(answer.text) > 4 and self._rng.random() < 0.2:
                request = replace(request, params=replace(request.params, stop=(answer.text[3:5],)))
                answer = self._solo(request)
            self._texts.append([*request.prompt_ids, *answer.token_ids, *self._tokens(300)])
            yield replace(request, prediction=self._prediction(answer)), answer

    def _prompt(self) -> list[int]:
        rng = self._rng
        text = rng.choice(self._texts[:3] + self._texts[-3:])
        length = rng.choice([rng.randrange(0, 20), 64, 128, rng.randrange(0, 330)])
        return text[:length] + self._tokens(rng.choice([0, 1, 5, 40]) + (length == 0))

    def _params(self) -> SamplingParams:
        rng = self._rng
        drawn: dict[str, Any] = {
            "temperature": rng.choice([0.0, 0.0, 0.7, 1.5]),
            "top_k": rng.choice([0, 5, 40]),
            "top_p": rng.choice([1.0, 0.9]),
            "min_p": rng.choice([0.0, 0.05]),
            "repetition_penalty": rng.choice([1.0, 1.0, 1.2]),
            "presence_penalty": rng.choice([0.0, 0.0, 0.6]),
            "frequency_penalty": rng.choice([0.0, 0.0, 0.4]),
            "logprobs": rng.choice([None, None, 0, 3]),
            "logit_bias": rng.choice([{}, {}, {7: 3.0, 2: -100.0}]),
        }
        return SamplingParams(
            max_tokens=rng.choice([1, 2, rng.randrange(1, 60), 90]),
            seed=rng.randrange(1 << 40),
            ignore_eos=rng.random() < 0.7,
            **drawn,
        )

    def _prediction(self, answer: Answer) -> list[int]:
        """The answer, or one that goes wrong somewhere, or nothing, or nonsense."""
        rng, ids = self._rng, list(answer.token_ids)
        at = rng.randrange(len(ids) + 1)
        return rng.choice([[], ids, ids[:at], [*ids[:at], *self._tokens(2), *ids[at:]], self._tokens(20)])

    def _tokens(self, count: int) -> list[int]:
        return [self._rng.randrange(3, self._solo.vocab_size) for _ in range(count)]
