"""The loop over a real engine: many requests at once, readers who leave at random moments, nothing leaks."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.engines import assert_idle
from support.tiny import write_tiny_model
from ultrafast import Engine
from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.stream import StreamCancelled
from ultrafast.engine.tiers import DEFAULT, DEFAULT_TIERS, Tiers
from ultrafast.errors import RequestError
from ultrafast.types import FinishReason, GenerateRequest, SamplingParams, TokenDelta

NUM_REQUESTS = 50


def requests() -> list[GenerateRequest]:
    rng = random.Random(5)
    made = []
    for i in range(NUM_REQUESTS):
        prompt = [rng.randrange(3, 280) for _ in range(rng.choice([1, 4, 63, 64, 65, 150]))]
        params = SamplingParams(max_tokens=rng.randrange(1, 60), temperature=i % 2, seed=i, logprobs=i % 3 or None)
        made.append(GenerateRequest(prompt, params))
    return made


def answer(delta: TokenDelta) -> tuple[Any, ...]:
    return delta.text, list(delta.token_ids), list(delta.logprobs or ()), delta.finish_reason


async def idle(loop: EngineLoop) -> None:
    while loop._active or loop._cancelled or loop._arrived:
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", [0, 1])
def test_survivors_get_their_solo_answers_and_nothing_leaks(tiny_model_path: Path, seed: int) -> None:
    engine = Engine(tiny_model_path, threads=1)
    asked = requests()
    solo = []
    for request in asked:
        params = {name: getattr(request.params, name) for name in ("max_tokens", "temperature", "seed", "logprobs")}
        output = engine.generate(request.prompt_ids, **params)
        solo.append((output.text, output.token_ids, list(output.logprobs or ()), output.finish_reason))
    rng = random.Random(seed)

    async def ask(loop: EngineLoop, index: int) -> None:
        for _ in range(rng.randrange(100)):
            await asyncio.sleep(0)
        stream = await loop.submit(asked[index])
        if index % 3 == 0:
            assert answer(await stream.result()) == solo[index]
            assert stream.usage.completion_tokens == len(solo[index][1])
            return
        for _ in range(rng.randrange(300)):
            await asyncio.sleep(0)
        before = stream.ended
        stream.cancel()
        if before:
            delta = stream.take()
            assert delta is not None
            assert answer(delta) == solo[index]
        else:
            with pytest.raises(StreamCancelled):
                stream.take()

    async def main() -> None:
        loop = EngineLoop(engine)
        loop.start()
        async with asyncio.timeout(60):
            await asyncio.gather(*(ask(loop, index) for index in range(NUM_REQUESTS)))
            await idle(loop)
            stats = engine.stats()
            assert (stats["running"], stats["waiting"]) == (0, 0)
            assert stats["free_blocks"] + stats["cached_blocks"] == stats["num_blocks"]
            engine._scheduler.check_integrity()
            await loop.close()

    asyncio.run(main())
    assert_idle(engine)


def test_cancelling_a_queued_request_does_not_touch_the_running_one(tiny_model_path: Path) -> None:
    one_slot = {**DEFAULT_TIERS.policies, DEFAULT: replace(DEFAULT_TIERS.policies[DEFAULT], slots=1)}
    engine = Engine(tiny_model_path, threads=1, tiers=Tiers(one_slot))
    long = GenerateRequest([5, 6, 7], SamplingParams(max_tokens=500, ignore_eos=True))
    expected = engine.generate([5, 6, 7], max_tokens=500, ignore_eos=True).text

    async def main() -> None:
        loop = EngineLoop(engine)
        loop.start()
        async with asyncio.timeout(60):
            for _ in range(20):
                running = await loop.submit(long)
                queued = [await loop.submit(long) for _ in range(3)]
                while not running.usage.completion_tokens:
                    await asyncio.sleep(0)
                for stream in queued:
                    stream.cancel()
                assert (await running.result()).text == expected
            await idle(loop)
            await loop.close()

    asyncio.run(main())
    assert_idle(engine)


def test_cancels_and_retries_corrupt_nobody(tiny_model_path: Path) -> None:
    """Eight greedy requests with one long prefix; two are cancelled early and asked again, round after round."""
    engine = Engine(tiny_model_path, threads=1)
    rng = random.Random(9)
    prefix = [rng.randrange(3, 280) for _ in range(128)]
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    asked = [GenerateRequest([*prefix, 10 + i], params) for i in range(8)]
    solo = [engine.generate(request.prompt_ids, max_tokens=40, ignore_eos=True).text for request in asked]

    async def main() -> None:
        loop = EngineLoop(engine)
        loop.start()
        async with asyncio.timeout(60):
            for _ in range(40):
                streams = [await loop.submit(request) for request in asked]
                for index in rng.sample(range(8), 2):
                    for _ in range(rng.randrange(200)):
                        await asyncio.sleep(0)
                    streams[index].cancel()
                    streams[index] = await loop.submit(asked[index])
                assert [(await stream.result()).text for stream in streams] == solo
            await loop.close()

    asyncio.run(main())
    assert_idle(engine)


def test_refused_requests_among_good_ones(tiny_model_path: Path) -> None:
    engine = Engine(tiny_model_path, threads=1)
    good = GenerateRequest([5, 6, 7], SamplingParams(max_tokens=100, ignore_eos=True))
    expected = engine.generate([5, 6, 7], max_tokens=100, ignore_eos=True).text
    bad = [
        GenerateRequest([], SamplingParams()),
        GenerateRequest([2**40], SamplingParams()),
        GenerateRequest([1] * 600, SamplingParams()),
        GenerateRequest([1], SamplingParams(temperature=float("nan"))),
        GenerateRequest([1], SamplingParams(max_tokens=2**63)),
    ]

    async def main() -> None:
        loop = EngineLoop(engine)
        loop.start()
        async with asyncio.timeout(60):
            streams = [await loop.submit(good) for _ in range(10)]
            for request in bad * 5:
                with pytest.raises(RequestError):
                    await loop.submit(request)
            assert [(await stream.result()).text for stream in streams] == [expected] * 10
            await loop.close()

    asyncio.run(main())
    assert_idle(engine)


@pytest.mark.parametrize("logprobs", [None, 2])
def test_a_deadline_leaves_the_beginning_of_the_answer(tmp_path: Path, logprobs: int | None) -> None:
    path = write_tiny_model(tmp_path / "long.gguf", context=16_384)  # more than any event loop sleeps through
    engine = Engine(path, threads=1)
    params = SamplingParams(max_tokens=16_000, ignore_eos=True, logprobs=logprobs)

    async def main() -> None:
        loop = EngineLoop(engine)
        loop.start()
        async with asyncio.timeout(60):
            stream = await loop.submit(GenerateRequest([5, 6, 7], params, deadline_s=86_400))
            while not stream.usage.completion_tokens:
                await asyncio.sleep(0)
            stream.deadline = 0.0  # it has come
            results.append(await stream.result())
            assert stream.usage.completion_tokens == len(results[0].token_ids)
            await loop.close()

    results: list[TokenDelta] = []
    asyncio.run(main())
    assert_idle(engine)
    assert 0 < len(results[0].token_ids) < 16_000
    with Engine(path, threads=1) as alone:
        limit = len(results[0].token_ids)
        output = alone.generate([5, 6, 7], max_tokens=limit, ignore_eos=True, logprobs=logprobs)
    assert answer(results[0]) == (output.text, output.token_ids, output.logprobs or [], FinishReason.LENGTH)


def test_closing_the_loop_frees_what_runs(tiny_model_path: Path) -> None:
    engine = Engine(tiny_model_path, threads=1)

    async def main() -> None:
        loop = EngineLoop(engine)
        loop.start()
        async with asyncio.timeout(60):
            streams = [await loop.submit(request) for request in requests()]
            while not any(stream.usage.completion_tokens for stream in streams):
                await asyncio.sleep(0)
            await loop.close()
            await loop.close()

    asyncio.run(main())
    assert_idle(engine)
