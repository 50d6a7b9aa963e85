"""The headers that tell what a tier has room for, and whether to try again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from support.asgi import Answer, client_of
from support.scripted_engine import ScriptedEngine, with_tiers
from ultrafast.engine.admission import Admission, Room
from ultrafast.engine.native import KV_BLOCK
from ultrafast.engine.tiers import Overflow
from ultrafast.errors import QueueFull, RequestError
from ultrafast.serving.errors import retry_headers
from ultrafast.serving.rate_limits import duration

CHAT = "/v1/chat/completions"
TIERS = with_tiers(
    ultrafast={"slots": 2, "queue": 1, "overflow": Overflow.QUEUE},
    fast={"slots": 2, "overflow": Overflow.DEFAULT},
    default={"slots": 3, "queue": 4},
    flex={"slots": 1, "overflow": Overflow.REJECT},
)
BLOCKS = 64  # of a scripted engine


def chat(tier: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hi"}]
    return {"model": "scripted", "messages": messages, "service_tier": tier, "max_tokens": 3, **fields}


def run(main: Coroutine[Any, Any, list[Answer]]) -> list[Answer]:
    async def bounded() -> list[Answer]:
        async with asyncio.timeout(20):
            return await main

    return asyncio.run(bounded())


def limits(answer: Answer) -> tuple[list[int], list[int]]:
    """Limit and what remains, of requests and of tokens."""
    requests, tokens = (
        [int(answer.headers[f"x-ratelimit-{what}-{of}"]) for what in ("limit", "remaining")]
        for of in ("requests", "tokens")
    )
    return requests, tokens


@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("tier", "limit"), [("ultrafast", 3), ("priority", 2), ("auto", 7), ("flex", 1)])
def test_the_limits_are_those_of_the_tier(path: str, stream: bool, tier: str, limit: int) -> None:
    async def main() -> list[Answer]:
        async with client_of(ScriptedEngine(tiers=TIERS)) as client:
            return [await client.post(path, chat(tier, stream=stream, input="Hi"))]

    (answer,) = run(main())
    requests, tokens = limits(answer)
    assert requests in ([limit, limit], [limit, limit - 1]), "it may have ended or not when the head is written"
    assert tokens[0] == BLOCKS * KV_BLOCK
    for of in ("requests", "tokens"):
        assert answer.headers[f"x-ratelimit-reset-{of}"].endswith("s")
    assert answer.headers["openai-version"] == "2020-10-01"


def test_what_is_taken_is_not_left() -> None:
    async def main() -> list[Answer]:
        engine = ScriptedEngine(tiers=TIERS, paced=True)
        async with client_of(engine) as client:
            begun = asyncio.Event()

            async def note(_: bytes) -> None:
                begun.set()

            first = asyncio.create_task(client.post(CHAT, chat("ultrafast", stream=True), on_body=note))
            await begun.wait()
            while not engine.stats()["running"]:
                await asyncio.sleep(0)
            engine.allow(1)
            while client.loop.stats()["held_blocks"] == 0:
                await asyncio.sleep(0)
            begun.clear()
            second = asyncio.create_task(client.post(CHAT, chat("ultrafast", stream=True), on_body=note))
            await begun.wait()
            refused = await client.post(CHAT, chat("ultrafast", stream=True, n=2))
            bad = await client.post(CHAT, chat("ultrafast", logit_bias={"999": 1}))
            engine.allow(None)
            return [await first, await second, refused, bad]

    first, second, refused, bad = run(main())
    assert limits(first)[0] == [3, 2]
    requests, tokens = limits(second)
    assert requests == [3, 1]
    assert tokens == [BLOCKS * KV_BLOCK, (BLOCKS - 1) * KV_BLOCK]
    assert second.headers["x-ratelimit-reset-requests"] == "1s"
    assert (refused.status, limits(refused)[0]) == (429, [3, 1])
    assert refused.headers["x-should-retry"] == "true"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert 1000 <= int(refused.headers["retry-after-ms"]) <= 60_000
    assert (bad.status, limits(bad)[0]) == (400, [3, 1])


def test_a_downgraded_request_tells_the_limits_of_default() -> None:
    async def main() -> list[Answer]:
        engine = ScriptedEngine(tiers=TIERS, paced=True)
        async with client_of(engine) as client:
            fast = [asyncio.create_task(client.post(CHAT, chat("fast"))) for _ in range(2)]
            while client.loop.admission.num_open("fast") < 2:
                await asyncio.sleep(0)
            downgraded = asyncio.create_task(client.post(CHAT, chat("fast")))
            while not client.loop.admission.num_open("default"):
                await asyncio.sleep(0)
            engine.allow(None)
            return [await downgraded, *[await task for task in fast]]

    downgraded, *_ = run(main())
    assert downgraded.headers["x-ultrafast-tier"] == "default"
    assert limits(downgraded)[0][0] == 7


def test_answers_without_a_tier_have_no_limits() -> None:
    async def main() -> list[Answer]:
        async with client_of(ScriptedEngine()) as client:
            return [await client.get("/v1/models"), await client.post(CHAT, {"model": "scripted"})]

    for answer in run(main()):
        assert not [name for name in answer.headers if name.startswith("x-ratelimit")]
        assert answer.headers["openai-version"] == "2020-10-01"


def test_room_counts_slots_queues_and_what_is_shared() -> None:
    admission = Admission(TIERS)
    assert [admission.room(tier).limit for tier in ("ultrafast", "fast", "default", "flex")] == [3, 2, 7, 1]
    tickets = [admission.admit("default") for _ in range(3)]
    assert admission.room("default") == Room(7, 4, 1.0)
    assert admission.room("flex") == Room(1, 0, 0.0), "no slot is left that it could have"
    assert admission.room("fast") == Room(2, 2, 0.0), "default gives way to it"
    waiting = [admission.admit("default") for _ in range(4)]
    assert admission.room("default") == Room(7, 0, 3.0)
    for ticket in waiting:
        admission.release(ticket)
    for ticket in tickets:
        admission.release(ticket, length_s=12.0)
    assert admission.room("default") == Room(7, 7, 0.0)
    admission.admit("default")
    assert admission.room("default") == Room(7, 6, 12.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0ms"),
        (0.0121, "13ms"),
        (0.9995, "1000ms"),
        (1.0, "1s"),
        (58.2, "59s"),
        (60.0, "1m0s"),
        (360.0, "6m0s"),
        (3725.0, "1h2m5s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_when_to_try_again() -> None:
    assert retry_headers(RequestError("no")) == {}
    assert retry_headers(QueueFull("full", retry_after=2.25)) == {
        "retry-after": "2",
        "retry-after-ms": "2250",
        "x-should-retry": "true",
    }
    late = RequestError("late", status=408, code="deadline_exceeded", param="deadline_s")
    assert retry_headers(late) == {"x-should-retry": "false"}
