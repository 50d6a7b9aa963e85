"""Scored prompts: the log-probabilities are those of `Engine.logits`, however the prompt is computed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.engines import OpenEngine, assert_idle
from support.mixed import answers, crowded_engine
from support.numpy_llama import log_softmax
from ultrafast import Engine
from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.stream import merge
from ultrafast.errors import RequestError
from ultrafast.types import FinishReason, GenerateRequest, SamplingParams, TokenLogprob


def tokens(count: int, seed: int = 1) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(3, 280) for _ in range(count)]


def check(engine: Engine, ids: list[int], scores: list[TokenLogprob] | None, top: int) -> None:
    """What the engine's own logits say, to the precision of float32."""
    assert scores is not None
    assert [entry.token_id for entry in scores] == ids[1:]
    for entry, row in zip(scores, log_softmax(engine.logits(ids)), strict=False):
        best = np.argsort(-row, kind="stable")[:top].tolist()
        assert [token for token, _ in entry.top] == best
        assert np.allclose([entry.logprob, *(value for _, value in entry.top)], row[[entry.token_id, *best]], atol=2e-5)


@pytest.mark.parametrize("length", [1, 2, 64, 65, 66, 200])
@pytest.mark.parametrize("max_tokens", [0, 1, 5])
def test_scores_are_those_of_the_logits(engine: Engine, length: int, max_tokens: int) -> None:
    ids = tokens(length)
    output = engine.generate(ids, prompt_logprobs=3, max_tokens=max_tokens, ignore_eos=True)
    check(engine, ids, output.prompt_logprobs, 3)
    assert output.finish_reason is FinishReason.LENGTH
    assert (output.usage.prompt_tokens, output.usage.completion_tokens) == (length, max_tokens)
    if max_tokens:
        assert output.token_ids == engine.generate(ids, max_tokens=max_tokens, ignore_eos=True).token_ids


def test_scores_do_not_depend_on_how_they_are_computed(tiny_model_path: Path, open_engine: OpenEngine) -> None:
    asked = [
        GenerateRequest(tokens(10 + 70 * i, i), SamplingParams(max_tokens=3 * (i % 2)), prompt_logprobs=i)
        for i in range(4)
    ]
    beside = [GenerateRequest(tokens(30 * i + 1, i), SamplingParams(max_tokens=30, ignore_eos=True)) for i in range(5)]
    engines = [open_engine(tiny_model_path, threads=1, prefill_chunk=chunk) for chunk in (1, 7, 512)]
    engines.append(open_engine(tiny_model_path, threads=2))
    alone = [answers(engines[0], [one])[0] for one in asked]
    assert [len(answer.prompt_logprobs) for answer in alone] == [len(one.prompt_ids) - 1 for one in asked]
    for engine in engines:
        assert answers(engine, [*asked, *beside])[:4] == alone
        assert answers(engine, [*beside, *asked])[-4:] == alone


def test_nothing_is_taken_from_the_cache_and_all_is_given_to_it(open_engine: OpenEngine) -> None:
    engine = open_engine()
    ids = tokens(200)
    first = engine.generate(ids, max_tokens=3)
    scored = engine.generate(ids, max_tokens=3, prompt_logprobs=1)
    check(engine, ids, scored.prompt_logprobs, 1)
    assert (first.token_ids, scored.usage.cached_tokens) == (scored.token_ids, 0)
    engine._scheduler.cache.clear()
    engine.generate(ids, max_tokens=0, prompt_logprobs=1)
    again = engine.generate(ids, max_tokens=3)
    assert (again.token_ids, again.usage.cached_tokens) == (first.token_ids, 199)


def test_a_prompt_may_fill_the_context_if_nothing_follows(engine: Engine) -> None:
    ids = tokens(engine.max_context)
    check(engine, ids, engine.generate(ids, max_tokens=0, prompt_logprobs=0).prompt_logprobs, 0)
    for wrong in ({"max_tokens": 1, "prompt_logprobs": 0}, {"max_tokens": 0}, {"prompt_logprobs": 0}):
        with pytest.raises(RequestError):
            engine.generate(ids, **wrong)
    with pytest.raises(RequestError):
        engine.generate([*ids, 5], max_tokens=0, prompt_logprobs=0)


def test_a_machine_with_room_for_the_prompt_alone(tiny_model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with crowded_engine(tiny_model_path, monkeypatch, num_blocks=2) as engine:
        ids = tokens(128)
        check(engine, ids, engine.generate(ids, max_tokens=0, prompt_logprobs=0).prompt_logprobs, 0)
        assert len(engine.generate(ids, max_tokens=1, ignore_eos=True).token_ids) == 1
        for wrong in ({"max_tokens": 2}, {"max_tokens": 0, "prompt_logprobs": 0}):
            with pytest.raises(RequestError):
                engine.generate([*ids, *([5] if wrong["max_tokens"] == 0 else [])], **wrong)


def test_a_preempted_prompt_is_scored_once(tiny_model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, params = tokens(300), SamplingParams(max_tokens=4, ignore_eos=True)
    asked = GenerateRequest(ids, params, "flex", prompt_logprobs=2)
    with crowded_engine(tiny_model_path, monkeypatch) as engine:
        (alone,) = answers(engine, [asked])
        check(engine, ids, alone.prompt_logprobs, 2)
        sequence = engine.add(asked)
        found = []
        for times in range(2):
            for _ in range(2):
                engine.interrupt()
                engine.step()
            assert 0 < sequence.native.num_scored < 299
            others = [engine.add(GenerateRequest(tokens(400, 9), params, tier)) for tier in ("fast", "default") * 2]
            while sequence.num_preempted <= times:
                engine.interrupt()
                engine.step()
            for other in others:
                engine.cancel(other)
        while engine.has_work:
            found += [delta for one, delta in engine.step() if one is sequence]
        assert merge(found).prompt_logprobs == alone.prompt_logprobs
        assert merge(found).token_ids == alone.token_ids
        assert sequence.num_preempted == 2
        assert_idle(engine)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("max_tokens", [0, 5])
def test_the_first_delta_of_a_stream_has_them(open_engine: OpenEngine, whole: bool, max_tokens: int) -> None:
    engine = open_engine()
    params: dict[str, Any] = {"max_tokens": max_tokens, "ignore_eos": True}
    expected = engine.generate(tokens(90), prompt_logprobs=1, **params)

    async def main() -> None:
        loop = EngineLoop(engine)
        loop.start()
        try:
            request = GenerateRequest(tokens(90), SamplingParams(**params), prompt_logprobs=1)
            stream = await loop.submit(request, whole=whole)
            deltas = [delta async for delta in stream]
            assert deltas[0].prompt_logprobs == expected.prompt_logprobs
            assert all(delta.prompt_logprobs is None for delta in deltas[1:])
            assert [token for delta in deltas for token in delta.token_ids] == expected.token_ids
            assert stream.usage.completion_tokens == max_tokens
        finally:
            await loop.close()

    asyncio.run(main())
