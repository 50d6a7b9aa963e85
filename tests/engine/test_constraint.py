"""Constrained outputs: nothing but what is allowed, the same with drafts, and a failure harms nobody else."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import random
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.engines import OpenEngine, assert_idle
from support.mixed import Answer, Solo, answers, crowded_engine
from support.numpy_llama import log_softmax
from ultrafast import Engine
from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.native import MAX_DRAFT, NativeSequence
from ultrafast.errors import RequestError
from ultrafast.types import FinishReason, GenerateRequest, SamplingParams, TokenDelta

VOCAB = 288
PROMPT = random.Random(1).sample(range(20, 280), 40)  # no token twice: nothing to draft from
DIGITS = "start: /[0-9]{1,40}/"
SENTENCE = 'start: "The answer is 42, and there is no other."'

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"logprobs": 2},
    "biased": {"logit_bias": dict.fromkeys(range(VOCAB), 100.0) | dict.fromkeys(range(40), -100.0), "logprobs": 0},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": -2.0},
    "sampled": {"temperature": 1.5, "top_k": 5, "top_p": 0.9, "seed": 3, "logprobs": 1},
    "wild": {"temperature": 100.0, "min_p": 0.01, "seed": 4},
}


class Rule:
    """A constraint by hand: ``next`` says which tokens may follow those told so far."""

    def __init__(self, next: Callable[[Sequence[int]], Iterable[int]]) -> None:
        self.told: list[int] = []
        self._next = next

    def mask_into(self, pointer: int) -> None:
        words = (ctypes.c_uint32 * (VOCAB // 32)).from_address(pointer)
        assert not any(words)
        for token in self._next(self.told):
            words[token // 32] |= 1 << token % 32

    def accept(self, token: int) -> None:
        self.told.append(token)


class ByHand:
    """In the place of an engine's grammars: each text stands for what makes its constraint."""

    def __init__(self, **makers: Callable[[], Any]) -> None:
        self.makers = makers
        self.made: list[Any] = []

    def constraint(self, text: str) -> Any:
        self.made.append(self.makers[text]())
        return self.made[-1]


def by_fives(told: Sequence[int]) -> range:
    """Five tokens in a row of the same remainder by 4, then of the next."""
    return range(len(told) // 5 % 4, VOCAB, 4)


# ---- what is allowed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tier", ["default", "ultrafast"])
def test_only_digits(engine: Engine, way: str, tier: str) -> None:
    for max_tokens in (7, 60):
        output = engine.generate(PROMPT, grammar=DIGITS, tier=tier, max_tokens=max_tokens, **WAYS[way])
        assert re.fullmatch(r"[0-9]{0,40}", output.text)
        if output.finish_reason is FinishReason.STOP:
            assert output.text
        else:
            assert len(output.token_ids) == max_tokens


@pytest.mark.parametrize("way", WAYS)
def test_only_one_sentence(engine: Engine, way: str) -> None:
    for ignore_eos in (False, True):  # the end of a grammar is the end
        output = engine.generate(PROMPT, grammar=SENTENCE, ignore_eos=ignore_eos, tier="ultrafast", **WAYS[way])
        assert (output.text, output.finish_reason) == ("The answer is 42, and there is no other.", FinishReason.STOP)


def test_log_probabilities_are_the_models_own(engine: Engine) -> None:
    output = engine.generate(PROMPT, grammar=SENTENCE, logprobs=3)
    assert output.logprobs is not None
    expected = log_softmax(engine.logits([*PROMPT, *output.token_ids])[len(PROMPT) - 1 :])
    for entry, row in zip(output.logprobs, expected, strict=False):
        assert entry.logprob == pytest.approx(row[entry.token_id], abs=1e-4)
        assert [token for token, _ in entry.top] == np.argsort(-row, kind="stable")[:3].tolist()
    assert any(entry.token_id != entry.top[0][0] for entry in output.logprobs)


# ---- drafts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_drafts_change_nothing(open_engine: OpenEngine, way: str) -> None:
    engine = open_engine(threads=2)
    engine._grammars = grammars = ByHand(fives=lambda: Rule(by_fives))  # type: ignore[assignment]
    params = WAYS[way] | {"max_tokens": 60, "ignore_eos": True, "grammar": "fives"}
    engine._grammars.constraint("fives").told.append(0)  # nobody else's state
    plain = engine.generate(PROMPT, **params)
    right = plain.token_ids
    told = grammars.made[-1].told
    assert len(right) >= 3
    assert all(token in by_fives(right[:index]) for index, token in enumerate(right))
    others = [[*right[:20], 5, 6, 7, *right[22:]], [(t + i % 3) % 280 for i, t in enumerate(right)], PROMPT[::-1]]
    for prediction in [right, *others]:
        fast = engine.generate(PROMPT, tier="ultrafast", prediction=prediction, cache_salt="other", **params)
        assert (fast.token_ids, fast.logprobs, fast.text) == (right, plain.logprobs, plain.text)
        assert grammars.made[-1].told == told
        if prediction is right:
            assert fast.usage.accepted_draft_tokens > 0


@pytest.mark.parametrize("way", WAYS)
def test_drafts_change_nothing_in_a_grammar(engine: Engine, way: str) -> None:
    plain = engine.generate(PROMPT, grammar=DIGITS, **WAYS[way])
    for prediction in (plain.token_ids, PROMPT):
        fast = engine.generate(PROMPT, grammar=DIGITS, tier="ultrafast", prediction=prediction, **WAYS[way])
        assert (fast.token_ids, fast.logprobs, fast.finish_reason) == (
            plain.token_ids,
            plain.logprobs,
            plain.finish_reason,
        )


# ---- beside others, and preempted ---------------------------------------------------------------------------


def test_neighbours_say_what_they_say_alone(tiny_model_path: Path, open_engine: OpenEngine) -> None:
    solo = Solo(tiny_model_path)
    engine = open_engine(tiny_model_path, threads=2)
    asked = [
        GenerateRequest(
            PROMPT[i:],
            SamplingParams(max_tokens=40, temperature=i % 2, seed=i, ignore_eos=True),
            ("ultrafast", "fast", "default", "flex")[i % 4],
            grammar=(None, DIGITS, SENTENCE)[i % 3],
        )
        for i in range(12)
    ]
    assert answers(engine, asked) == [solo(one) for one in asked]


def test_a_preempted_output_goes_on_where_it_was(tiny_model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(max_tokens=60, temperature=1.0, seed=5, ignore_eos=True)
    asked = GenerateRequest(PROMPT, params, "flex", grammar=SENTENCE)
    by_hand = ByHand(fives=lambda: Rule(by_fives))
    with crowded_engine(tiny_model_path, monkeypatch) as engine:
        expected = answers(engine, [asked])
        engine._grammars = by_hand  # type: ignore[assignment]
        fives = replace(asked, grammar="fives")
        alone = answers(engine, [fives])[0]
        sequence, answer = engine.add(fives), Answer()
        for times in range(3):
            while len(answer.token_ids) < 4 + 9 * times:
                step(engine, sequence, answer)
            others = [engine.add(GenerateRequest(PROMPT[::-1], params, "fast", cache_salt=str(i))) for i in range(2)]
            others += [engine.add(GenerateRequest(PROMPT[::-1], params)) for i in range(3)]
            while sequence.num_preempted <= times:
                step(engine, sequence, answer)
            for other in others:
                engine.cancel(other)
        while engine.has_work:
            step(engine, sequence, answer)
        assert answer == alone
        assert by_hand.made[1].told == by_hand.made[0].told
        assert sequence.num_preempted == 3
        assert expected[0].text == "The answer is 42, and there is no other."
        assert_idle(engine)


def step(engine: Engine, sequence: Any, answer: Answer) -> None:
    engine.interrupt()
    for other, delta in engine.step():
        if other is sequence:
            assert isinstance(delta, TokenDelta)
            answer.add(delta)


# ---- what fails ---------------------------------------------------------------------------------------------


class Broken(Rule):
    """Fails at its n-th mask, or at its n-th token."""

    def __init__(self, at: int, error: BaseException, *, of: str = "mask") -> None:
        super().__init__(lambda _: range(VOCAB))
        self.at, self.error, self.of = at, error, of

    def mask_into(self, pointer: int) -> None:
        if self.of == "mask" and len(self.told) == self.at:
            raise self.error
        super().mask_into(pointer)

    def accept(self, token: int) -> None:
        super().accept(token)
        if self.of == "accept" and len(self.told) == self.at:
            raise self.error


def nothing_after(count: int) -> Rule:
    return Rule(lambda told: [] if len(told) == count else range(VOCAB))


FAILURES: dict[str, tuple[Callable[[], Rule], int, int, str]] = {  # constraint, tokens before, status, message
    "at once": (lambda: Broken(0, ValueError("oh")), 0, 500, "The grammar of the output failed: oh"),
    "later": (lambda: Broken(5, KeyError("oh")), 5, 500, "The grammar of the output failed: 'oh'"),
    "told": (lambda: Broken(3, ValueError("oh"), of="accept"), 3, 500, "The grammar of the output failed: oh"),
    "refused": (lambda: Broken(4, RequestError("too much work", param="grammar")), 4, 400, "too much work"),
    "exits": (lambda: Broken(4, SystemExit(3)), 4, 500, "The grammar of the output failed: 3"),
    "empty": (lambda: nothing_after(0), 0, 500, "The grammar of the output failed: no token is allowed to come next"),
    "dead end": (
        lambda: nothing_after(6),
        6,
        500,
        "The grammar of the output failed: no token is allowed to come next",
    ),
}


@pytest.mark.parametrize("tier", ["default", "ultrafast"])
@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_ends_its_request_alone(open_engine: OpenEngine, case: str, tier: str) -> None:
    make, num_tokens, status, message = FAILURES[case]
    engine = open_engine(threads=2)
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    plain = GenerateRequest(PROMPT[3:], params)
    expected = answers(engine, [plain])
    right = engine.generate(PROMPT, max_tokens=40, ignore_eos=True).token_ids
    engine._grammars = ByHand(broken=make)  # type: ignore[assignment]
    asked = GenerateRequest(PROMPT, params, tier, prediction=right, grammar="broken")

    async def main() -> None:
        loop = EngineLoop(engine)
        loop.start()
        try:
            neighbour, failing, whole = (
                await loop.submit(plain),
                await loop.submit(asked),
                await loop.submit(asked, whole=True),
            )
            token_ids: list[int] = []
            failure: RequestError | None = None
            try:
                async for delta in failing:
                    token_ids += delta.token_ids
            except RequestError as error:
                failure = error
            assert failure is not None
            assert (failure.status, failure.message, token_ids) == (status, message, right[:num_tokens])
            with pytest.raises(RequestError, match=re.escape(message)):
                await whole.result()
            answer = Answer()
            answer.add(await neighbour.result())
            assert [answer] == expected
            assert loop.admission.num_open(tier) == 0
            assert loop.stats()["running"] == 0
        finally:
            await loop.close()

    asyncio.run(main())


def test_a_caller_gets_the_error_and_the_engine_goes_on(open_engine: OpenEngine) -> None:
    engine = open_engine()
    real = engine._grammars
    engine._grammars = ByHand(broken=lambda: Broken(2, ValueError("oh")))  # type: ignore[assignment]
    for _ in range(3):
        with pytest.raises(RequestError, match="oh") as failure:
            engine.generate(PROMPT, grammar="broken", ignore_eos=True)
        assert isinstance(failure.value.__cause__, ValueError)
        assert_idle(engine)
    engine._grammars = real
    assert engine.generate(PROMPT, grammar=SENTENCE).finish_reason is FinishReason.STOP


def test_a_grammar_that_is_none_is_refused_by_name(engine: Engine) -> None:
    for call in (engine.generate, engine.stream):
        for wrong in ("start: (", "nonsense", "", 5):
            with pytest.raises(RequestError) as refusal:
                call(PROMPT, grammar=wrong)
            assert (refusal.value.status, refusal.value.param) == (400, "grammar")


def test_what_is_no_constraint_is_refused_at_once() -> None:
    class Deaf:
        def mask_into(self, pointer: int) -> None: ...

    with pytest.raises(AttributeError, match="accept"):
        NativeSequence([1], SamplingParams(), max_tokens=1, stop_ids=[], constraint=Deaf())  # type: ignore[arg-type]


def test_a_sequence_lets_its_constraint_go(open_engine: OpenEngine) -> None:
    engine = open_engine(threads=2)
    kept: list[weakref.ref[Rule]] = []

    def made(rule: Rule) -> Rule:
        kept.append(weakref.ref(rule))
        return rule

    engine._grammars = grammars = ByHand(  # type: ignore[assignment]
        fives=lambda: made(Rule(by_fives)), broken=lambda: made(Broken(2, RequestError("oh")))
    )
    engine.generate(PROMPT, grammar="fives", max_tokens=5)
    with pytest.raises(RequestError):
        engine.generate(PROMPT, grammar="broken", max_tokens=5, ignore_eos=True)
    engine.cancel(engine.add(GenerateRequest(PROMPT, SamplingParams(), grammar="fives")))
    NativeSequence(
        [1], SamplingParams(), max_tokens=1, stop_ids=[], draft_limit=MAX_DRAFT, constraint=made(Rule(by_fives))
    )
    grammars.made.clear()
    gc.collect()  # frames and exceptions know each other
    gc.collect()
    assert [ref() for ref in kept] == [None] * 4
