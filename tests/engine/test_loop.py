"""The engine's thread: ordering, cancellation, failures, drain, idleness."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from support.scripted_engine import ScriptedEngine, text_of, with_tiers
from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.stream import RequestTiers, StreamCancelled, flushes
from ultrafast.engine.tiers import TIERS, Overflow
from ultrafast.errors import PromptTooLong, RequestError
from ultrafast.types import FinishReason, GenerateRequest, SamplingParams, TokenDelta


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await main

    asyncio.run(bounded())


@asynccontextmanager
async def running(engine: ScriptedEngine) -> AsyncIterator[EngineLoop]:
    loop = EngineLoop(engine)  # type: ignore[arg-type]
    loop.start()
    try:
        yield loop
    finally:
        await loop.close()
        assert engine.closed


def ask(max_tokens: int = 10, **params: Any) -> GenerateRequest:
    return GenerateRequest([1, 2, 3], SamplingParams(max_tokens=max_tokens, **params))


async def eventually(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_all_tokens_arrive_in_order() -> None:
    async def main() -> None:
        async with running(ScriptedEngine()) as loop:
            stream = await loop.submit(ask(50))
            deltas = [delta async for delta in stream]
            assert "".join(d.text for d in deltas) == text_of(50)
            assert [t for d in deltas for t in d.token_ids] == list(text_of(50).encode())
            assert [d.finish_reason for d in deltas][-1] is FinishReason.LENGTH
            assert all(d.finish_reason is None for d in deltas[:-1])
            assert (stream.usage.prompt_tokens, stream.usage.completion_tokens) == (3, 50)

    run(main())


def test_a_reader_that_does_not_read_gets_one_merged_delta() -> None:
    async def main() -> None:
        async with running(ScriptedEngine()) as loop:
            stream = await loop.submit(ask(40, logprobs=2))
            await eventually(lambda: stream.ended)
            whole = stream.take()
            assert whole is not None
            assert whole.text == text_of(40)
            assert len(whole.token_ids) == len(whole.logprobs or ()) == 40
            assert stream.take() is None
            assert stream.exhausted

    run(main())


def test_a_whole_stream_wakes_its_event_loop_once() -> None:
    async def main() -> None:
        loop = EngineLoop(ScriptedEngine())  # type: ignore[arg-type]
        parts, whole = await loop.submit(ask(30, logprobs=1)), await loop.submit(ask(30, logprobs=1), whole=True)
        received = []
        receive = whole.receive
        whole.receive = lambda item: (received.append(item), receive(item))  # type: ignore[assignment, func-returns-value]
        loop.start()
        expected = await parts.result()
        assert await whole.result() == expected
        assert received == [expected]
        assert whole.usage == parts.usage
        await loop.close()

    run(main())


def test_a_whole_stream_tells_of_a_cancel_and_of_a_failure() -> None:
    async def main() -> None:
        engine = ScriptedEngine(paced=True)
        async with running(engine) as loop:
            cancelled, failed = await loop.submit(ask(30), whole=True), await loop.submit(ask(30), whole=True)
            engine.allow(4)
            await eventually(lambda: engine.num_steps == 4)
            assert cancelled.take() is failed.take() is None
            cancelled.cancel()
            with pytest.raises(StreamCancelled):
                await cancelled.result()
            engine.fail_next = RuntimeError("boom")
            engine.allow(None)
            with pytest.raises(RequestError):
                await failed.result()

    run(main())


def test_requests_beyond_the_slots_wait_and_all_are_served() -> None:
    async def main() -> None:
        async with running(ScriptedEngine(num_slots=3)) as loop:
            streams = [await loop.submit(ask(5 + i % 7)) for i in range(200)]
            results = [await stream.result() for stream in streams]
            assert [r.text for r in results] == [text_of(5 + i % 7) for i in range(200)]

    run(main())


def test_cancel_ends_a_burst_and_frees_the_slot() -> None:
    async def main() -> None:
        engine = ScriptedEngine(paced=True, num_slots=1)
        async with running(engine) as loop:
            first, second = await loop.submit(ask()), await loop.submit(ask(3))
            await eventually(lambda: loop.stats()["running"] == 1)
            start = time.monotonic()
            first.cancel()  # the engine waits in a step that nothing else would end
            await eventually(lambda: first.sequence not in loop._active)
            assert time.monotonic() - start < 0.1
            with pytest.raises(StreamCancelled):
                first.take()
            engine.allow(None)
            assert (await second.result()).text == text_of(3)
            assert first.usage.completion_tokens == 0

    run(main())


def test_cancel_before_the_engine_took_it_and_after_its_end_is_harmless() -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        loop = EngineLoop(engine)  # type: ignore[arg-type]
        early = await loop.submit(ask())
        early.cancel()
        loop.start()
        late = await loop.submit(ask(4))
        await late.result()
        late.cancel()
        assert not late.cancelled
        await loop.drain()
        assert len(engine.requests) == 1
        await loop.close()

    run(main())


def test_a_failed_step_fails_what_had_begun_and_keeps_what_waited() -> None:
    async def main() -> None:
        engine = ScriptedEngine(paced=True, num_slots=1)
        async with running(engine) as loop:
            begun, waiting = await loop.submit(ask()), await loop.submit(ask(6))
            await eventually(lambda: loop.stats()["running"] == 1)
            engine.fail_next = RuntimeError("boom")
            engine.allow(None)
            with pytest.raises(RequestError) as failure:
                await begun.result()
            assert failure.value.status == 500
            assert "boom" not in failure.value.message
            assert (await waiting.result()).text == text_of(6)

    run(main())


def test_an_engine_that_cannot_add_fails_that_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        add = engine.add

        def failing_add(request: GenerateRequest, tier: str) -> Any:
            if request.params.max_tokens == 7:
                raise MemoryError
            return add(request, tier)

        monkeypatch.setattr(engine, "add", failing_add)
        async with running(engine) as loop:
            bad, good = await loop.submit(ask(7)), await loop.submit(ask(8))
            with pytest.raises(RequestError) as failure:
                await bad.result()
            assert failure.value.status == 500
            assert (await good.result()).text == text_of(8)

    run(main())


def test_bad_requests_are_refused_at_submit() -> None:
    async def main() -> None:
        async with running(ScriptedEngine()) as loop:
            with pytest.raises(PromptTooLong):
                await loop.submit(ask(10_000))

    run(main())


def ultrafast(max_tokens: int = 10, **fields: Any) -> GenerateRequest:
    return replace(ask(max_tokens), tier="ultrafast", **fields)


def one_slot(**changes: Any) -> ScriptedEngine:
    """A paced engine with one ultrafast slot, one that may wait for it, and one slot for all others."""
    changes = {"slots": 1, "queue": 1} | changes
    return ScriptedEngine(tiers=with_tiers(ultrafast=changes, default={"slots": 1, "queue": 1}), paced=True)


def counts(loop: EngineLoop) -> list[tuple[int, int]]:
    return [(loop.admission.num_open(tier), loop.admission.num_waiting(tier)) for tier in TIERS]


NONE_OPEN = [(0, 0)] * 4


def test_a_full_house_is_429() -> None:
    async def main() -> None:
        engine = one_slot()
        async with running(engine) as loop:
            streams = [await loop.submit(ultrafast(2)) for _ in range(2)]
            with pytest.raises(RequestError) as refusal:
                await loop.submit(ultrafast())
            assert refusal.value.status == 429
            assert "1 slot, all in use, and 1 request" in refusal.value.message
            assert refusal.value.retry_after
            engine.allow(None)
            for stream in streams:
                await stream.result()
            assert counts(loop) == NONE_OPEN
            await (await loop.submit(ultrafast(2))).result()

    run(main())


def test_admitted_is_told_when_the_slot_is_there() -> None:
    async def main() -> None:
        engine = one_slot()
        async with running(engine) as loop:
            first, second = await loop.submit(ultrafast(2)), await loop.submit(ultrafast(3))
            await first.admitted()
            waiting = asyncio.create_task(second.admitted())
            engine.allow(1)
            await eventually(lambda: engine.num_steps == 1)
            assert second.ticket.queued
            assert not waiting.done()
            assert second.tiers == RequestTiers("ultrafast", "ultrafast", None, None)
            engine.allow(2)
            await waiting
            assert counts(loop)[0] == (1, 0)
            assert second.tiers == RequestTiers("ultrafast", "ultrafast", "ultrafast", "ultrafast")
            engine.allow(None)
            assert (await second.result()).text == text_of(3)

    run(main())


def test_the_tiers_of_a_request_that_overflows() -> None:
    async def main() -> None:
        engine = one_slot(overflow=Overflow.DEFAULT)
        async with running(engine) as loop:
            await loop.submit(ultrafast(2))
            stream = await loop.submit(ultrafast(2))
            engine.allow(None)
            await stream.result()
            assert stream.tiers == RequestTiers("ultrafast", "default", "default", "default")
            assert stream.sequence is not None
            assert stream.sequence.tier == "default"

    run(main())


def test_waiting_has_an_end() -> None:
    async def main() -> None:
        engine = one_slot(queue_timeout_s=0.001)
        async with running(engine) as loop:
            first, second = await loop.submit(ultrafast(200)), await loop.submit(ultrafast())

            async def keep_turning() -> None:
                while not second.ended:
                    engine.interrupt()
                    await asyncio.sleep(0)

            turning = asyncio.create_task(keep_turning())
            with pytest.raises(RequestError) as refusal:
                await second.admitted()
            await turning
            assert (refusal.value.status, refusal.value.code) == (429, "rate_limit_exceeded")
            assert "within 0.001 s" in refusal.value.message
            assert second.tiers == RequestTiers("ultrafast", "ultrafast", None, None)
            assert counts(loop)[0] == (1, 0)
            assert loop.stats()["waiting"] == 0
            assert not first.ended, "whoever has a slot keeps it"

    run(main())


@pytest.mark.parametrize("whole", [False, True])
def test_a_deadline_ends_a_request_with_what_it_has(whole: bool) -> None:
    async def main() -> None:
        engine = one_slot()
        async with running(engine) as loop:
            stream = await loop.submit(ultrafast(200, deadline_s=86_400), whole=whole)
            engine.allow(19)
            await eventually(lambda: stream.usage.completion_tokens == 19)
            stream.deadline = 0.0  # it has come
            engine.interrupt()
            result = await stream.result()
            assert result.text == text_of(19)
            assert result.finish_reason is FinishReason.LENGTH
            assert stream.tiers.billed == "ultrafast"
            assert counts(loop) == NONE_OPEN
            assert loop.stats()["running"] == 0

    run(main())


def test_a_deadline_before_the_first_token_is_408() -> None:
    async def main() -> None:
        engine = one_slot()
        async with running(engine) as loop:
            streams = [await loop.submit(ultrafast(deadline_s=0.001)) for _ in range(2)]
            for stream in streams:
                while not stream.ended:
                    engine.interrupt()
                    await asyncio.sleep(0)
                with pytest.raises(RequestError) as failure:
                    await stream.result()
                assert (failure.value.status, failure.value.param) == (408, "deadline_s")
                assert stream.tiers.billed is None
            assert counts(loop) == NONE_OPEN

    run(main())


def test_every_end_gives_the_ticket_back() -> None:
    """Finished, failed, cancelled with a slot, cancelled while waiting, refused by the engine, closed."""

    async def main() -> None:
        engine = one_slot(queue=4)
        async with running(engine) as loop:

            async def becomes(num_open: int, num_waiting: int) -> None:
                while counts(loop)[0] != (num_open, num_waiting):
                    engine.interrupt()  # who begins in a step is told of when it ends
                    await asyncio.sleep(0)

            streams = await loop.submit_all([ultrafast(3)] * 5)
            await becomes(5, 4)
            streams[0].cancel()
            streams[4].cancel()
            await becomes(3, 2)
            engine.allow(3)
            await streams[1].result()
            await becomes(2, 1)
            engine.fail_next = RuntimeError("boom")
            engine.allow(1)
            with pytest.raises(RequestError):
                await streams[2].result()
            await becomes(1, 0)
            early = await loop.submit(ultrafast())
            early.cancel()
            await becomes(1, 0)
        assert counts(loop) == NONE_OPEN

    run(main())


def test_submit_all_is_all_or_none() -> None:
    async def main() -> None:
        engine = one_slot()
        async with running(engine) as loop:
            with pytest.raises(RequestError) as refusal:
                await loop.submit_all([ultrafast()] * 3)
            assert refusal.value.param == "n"
            assert counts(loop) == NONE_OPEN
            with pytest.raises(PromptTooLong):
                await loop.submit_all([ultrafast(), ultrafast(10_000)])
            assert counts(loop) == NONE_OPEN
            assert engine.requests == []
            news = asyncio.Event()
            streams = await loop.submit_all([ultrafast(2)] * 2, news=news)
            assert {stream.news for stream in streams} == {news}
            engine.allow(None)
            assert [(await stream.result()).text for stream in streams] == [text_of(2)] * 2

    run(main())


def test_an_ultrafast_request_preempts_and_others_only_interrupt() -> None:
    async def main() -> None:
        engine = one_slot()
        async with running(engine) as loop:
            await loop.submit(ask())
            assert engine.num_preempts == 0
            await loop.submit(ultrafast())
            assert engine.num_preempts == 1
            await eventually(lambda: loop.stats()["running"] == 2)

    run(main())


def test_drain_finishes_what_runs_and_refuses_what_comes() -> None:
    async def main() -> None:
        engine = ScriptedEngine(paced=True)
        async with running(engine) as loop:
            stream = await loop.submit(ask(5))
            drained = asyncio.create_task(loop.drain())
            await eventually(lambda: loop.draining)
            with pytest.raises(RequestError) as refusal:
                await loop.submit(ask())
            assert refusal.value.status == 503
            assert not drained.done()
            engine.allow(None)
            assert (await stream.result()).text == text_of(5)
            await drained

    run(main())


def test_close_fails_what_runs() -> None:
    async def main() -> None:
        async with running(ScriptedEngine(paced=True)) as loop:
            stream = await loop.submit(ask())
            await loop.close()
            with pytest.raises(RequestError) as failure:
                await stream.result()
            assert failure.value.status == 503

    run(main())


def test_an_idle_loop_sleeps() -> None:
    """Its thread waits on a condition: it takes no CPU time at all between two requests."""

    async def main() -> None:
        engine = ScriptedEngine()
        async with running(engine) as loop:
            await (await loop.submit(ask(5))).result()
            await eventually(lambda: not loop._active)
            waits = 0
            wait_for = loop._changed.wait_for

            def counting(*args: Any) -> Any:
                nonlocal waits
                waits += 1
                return wait_for(*args)

            loop._changed.wait_for = counting  # type: ignore[method-assign]
            steps = engine.num_steps
            await (await loop.submit(ask(5))).result()
            await eventually(lambda: not loop._active)
            assert engine.num_steps - steps == 5
            assert waits <= 7  # once a turn; a polling loop would go round without end

    run(main())


def test_one_wake_up_a_step_for_all_streams() -> None:
    async def main() -> None:
        engine = ScriptedEngine(num_slots=50)
        loop = EngineLoop(engine)  # type: ignore[arg-type]
        event_loop = asyncio.get_running_loop()
        from_engine = 0
        call_soon_threadsafe = event_loop.call_soon_threadsafe

        def counting(*args: Any, **kwargs: Any) -> Any:
            nonlocal from_engine
            from_engine += threading.current_thread().name == "ultrafast-engine"
            return call_soon_threadsafe(*args, **kwargs)

        streams = [await loop.submit(ask(20)) for _ in range(50)]
        event_loop.call_soon_threadsafe = counting  # type: ignore[method-assign]
        loop.start()
        for stream in streams:
            await stream.result()
        assert from_engine == 20
        await loop.close()

    run(main())


def test_flushes_pass_the_first_token_at_once_and_merge_the_rest() -> None:
    async def main() -> None:
        engine = ScriptedEngine(paced=True)
        async with running(engine) as loop:
            news = asyncio.Event()
            streams = [await loop.submit(ask(30), news=news) for _ in range(2)]
            batches: list[list[tuple[int, TokenDelta]]] = []
            engine.allow(1)
            async for batch in flushes(streams, news, interval_s=60.0):  # longer than the test may take
                if not batches:
                    engine.allow(None)
                batches.append(batch)
            texts = ["".join(d.text for batch in batches for i, d in batch if i == index) for index in range(2)]
            assert texts == [text_of(30)] * 2
            assert len(batches[0][0][1].token_ids) == 1
            assert len(batches) <= 3  # the first token, the ends

    run(main())


def test_flushes_tell_of_a_failure_after_all_text() -> None:
    async def main() -> None:
        engine = ScriptedEngine(paced=True)
        async with running(engine) as loop:
            news = asyncio.Event()
            stream = await loop.submit(ask(30), news=news)
            engine.allow(4)
            await eventually(lambda: engine.num_steps == 4)
            engine.fail_next = RuntimeError("boom")
            engine.allow(1)
            await eventually(lambda: stream.ended)
            batches = aiter(flushes([stream], news, interval_s=0.001))
            assert (await anext(batches))[0][1].text == text_of(4)
            with pytest.raises(RequestError):
                await anext(batches)

    run(main())


def test_a_reader_whose_event_loop_has_closed_is_dropped() -> None:
    engine = ScriptedEngine(paced=True)
    loop = EngineLoop(engine)  # type: ignore[arg-type]

    async def leave() -> None:
        loop.start()
        await loop.submit(ask(100))

    asyncio.run(leave())

    async def main() -> None:
        engine.allow(1)
        while loop.stats()["running"] or loop.stats()["waiting"] or not engine.num_steps:
            await asyncio.sleep(0)
        engine.allow(None)
        assert (await (await loop.submit(ask(5))).result()).text == text_of(5)
        await loop.close()

    run(main())
