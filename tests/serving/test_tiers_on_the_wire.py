"""Every overflow policy as a client sees it: in status, echoed tier, headers and usage; and what isolates caches."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from support.asgi import Answer, Client, client_of
from support.scripted_engine import ScriptedEngine, text_of, with_tiers
from ultrafast.engine.tiers import TIERS, Overflow
from ultrafast.serving.isolation import Isolation

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
ENDPOINTS = [(path, stream) for path in (CHAT, RESPONSES) for stream in (False, True)]
LIMIT = 4


def ask(tier: str = "ultrafast", **fields: Any) -> dict[str, Any]:
    return {
        "model": "scripted",
        "messages": [{"role": "user", "content": "Hi"}],
        "input": "Hi",
        "max_tokens": LIMIT,
        "max_output_tokens": LIMIT,
        "stream_options": {"include_usage": True},
        "service_tier": tier,
        **fields,
    }


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(20):
            return await main

    return asyncio.run(bounded())


def engine(overflow: Overflow = Overflow.QUEUE, **ultrafast: Any) -> ScriptedEngine:
    """One slot of ultrafast and a queue of one; two slots for the others together, one of them for flex."""
    tiers = with_tiers(
        ultrafast={"slots": 1, "queue": 1, "overflow": overflow} | ultrafast,
        fast={"slots": 1},
        default={"slots": 2, "queue": 1},
        flex={"slots": 1},
    )
    return ScriptedEngine(tiers=tiers, paced=True)


async def occupied(client: Client, tier: str, count: int) -> list[asyncio.Task[Answer]]:
    """Requests that hold slots of the tier until steps are granted."""
    before = client.loop.admission.num_open(tier)
    tasks = [asyncio.create_task(client.post(CHAT, ask(tier))) for _ in range(count)]
    while client.loop.admission.num_open(tier) < before + count:
        await asyncio.sleep(0)
    return tasks


async def nobody_left(client: Client) -> None:
    loop = client.loop
    while any(loop.stats()[name] for name in ("running", "waiting")):
        await asyncio.sleep(0)
    assert [(loop.admission.num_open(tier), loop.admission.num_waiting(tier)) for tier in TIERS] == [(0, 0)] * 4


def bodies(answer: Answer) -> list[dict[str, Any]]:
    """All JSON objects of an answer that name a tier or have a usage."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return [answer.json()]
    events = [data for _, data in answer.events() if data != "[DONE]"]
    return [event.get("response", event) for event in events]


def check_served(answer: Answer, *, by: str, asked: str) -> None:
    """The same tier everywhere, and the usage of the whole answer."""
    assert answer.status == 200
    assert (answer.headers["x-ultrafast-tier"], answer.headers["x-ultrafast-tier-asked"]) == (by, asked)
    echoes = {body["service_tier"] for body in bodies(answer) if "service_tier" in body}
    assert echoes == {by}
    (usage,) = [body["usage"] for body in bodies(answer) if body.get("usage")]
    assert usage.get("completion_tokens", usage.get("output_tokens")) == LIMIT


def check_refused(answer: Answer, *, code: str = "rate_limit_exceeded") -> None:
    assert answer.status == 429
    assert (answer.error["type"], answer.error["code"]) == ("rate_limit_error", code)
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert "x-ultrafast-tier" not in answer.headers, "nobody served it"
    assert "usage" not in answer.json()


@pytest.mark.parametrize(("path", "stream"), ENDPOINTS)
@pytest.mark.parametrize("tier", TIERS)
def test_with_room_the_tier_asked_for_serves(tier: str, path: str, stream: bool) -> None:
    async def main() -> None:
        scripted = engine()
        scripted.allow(None)
        async with client_of(scripted) as client:
            check_served(await client.post(path, ask(tier, stream=stream)), by=tier, asked=tier)
            await nobody_left(client)

    run(main())


@pytest.mark.parametrize(("path", "stream"), ENDPOINTS)
@pytest.mark.parametrize(
    ("policy", "wish"),
    [(Overflow.REJECT, None), (Overflow.QUEUE, "reject"), (Overflow.DEFAULT, "reject")],
    ids=["policy", "narrowed from queue", "narrowed from default"],
)
def test_reject(policy: Overflow, wish: str | None, path: str, stream: bool) -> None:
    async def main() -> None:
        scripted = engine(policy)
        async with client_of(scripted) as client:
            (first,) = await occupied(client, "ultrafast", 1)
            refused = await client.post(path, ask(stream=stream, service_tier_overflow=wish))
            check_refused(refused)
            assert "ultrafast has 1 slot, all in use, and 0 requests wait" in refused.error["message"]
            scripted.allow(None)
            check_served(await first, by="ultrafast", asked="ultrafast")
            await nobody_left(client)

    run(main())


@pytest.mark.parametrize(("path", "stream"), ENDPOINTS)
@pytest.mark.parametrize(
    ("policy", "wish"),
    [(Overflow.QUEUE, None), (Overflow.QUEUE, "queue"), (Overflow.DEFAULT, "queue")],
    ids=["policy", "the same", "narrowed from default"],
)
def test_queue(policy: Overflow, wish: str | None, path: str, stream: bool) -> None:
    async def main() -> None:
        scripted = engine(policy)
        async with client_of(scripted) as client:
            (first,) = await occupied(client, "ultrafast", 1)
            heads: list[bytes] = []

            async def on_body(chunk: bytes) -> None:
                heads.append(chunk)

            body = ask(stream=stream, service_tier_overflow=wish)
            second = asyncio.create_task(client.post(path, body, on_body=on_body))
            while not client.loop.admission.num_waiting("ultrafast"):
                await asyncio.sleep(0)
            check_refused(await client.post(path, body))
            assert not heads, "nothing is said before the slot is there"
            scripted.allow(LIMIT)
            check_served(await first, by="ultrafast", asked="ultrafast")
            scripted.allow(None)
            check_served(await second, by="ultrafast", asked="ultrafast")
            await nobody_left(client)

    run(main())


@pytest.mark.parametrize(("path", "stream"), ENDPOINTS)
@pytest.mark.parametrize("tier", ["ultrafast", "fast"])
def test_default(tier: str, path: str, stream: bool) -> None:
    async def main() -> None:
        scripted = engine(Overflow.DEFAULT)
        async with client_of(scripted) as client:
            tasks = await occupied(client, tier, 1)
            second = asyncio.create_task(client.post(path, ask(tier, stream=stream)))
            while not client.loop.admission.num_open("default"):
                await asyncio.sleep(0)
            scripted.allow(None)
            check_served(await second, by="default", asked=tier)
            check_served(await tasks[0], by=tier, asked=tier)
            await nobody_left(client)

    run(main())


@pytest.mark.parametrize(("path", "stream"), ENDPOINTS)
def test_flex_is_turned_away_without_room(path: str, stream: bool) -> None:
    async def main() -> None:
        scripted = engine()
        async with client_of(scripted) as client:
            tasks = await occupied(client, "default", 2)
            check_refused(await client.post(path, ask("flex", stream=stream)), code="resource_unavailable")
            scripted.allow(None)
            for task in tasks:
                check_served(await task, by="default", asked="default")
            check_served(await client.post(path, ask("flex", stream=stream)), by="flex", asked="flex")
            await nobody_left(client)

    run(main())


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize(
    ("policy", "wish"), [(Overflow.REJECT, "queue"), (Overflow.REJECT, "default"), (Overflow.QUEUE, "default")]
)
def test_a_request_cannot_widen_the_policy(path: str, policy: Overflow, wish: str) -> None:
    async def main() -> None:
        async with client_of(engine(policy)) as client:
            answer = await client.post(path, ask(service_tier_overflow=wish))
            assert answer.status == 400
            assert answer.error["param"] == "service_tier_overflow"
            await nobody_left(client)

    run(main())


@pytest.mark.parametrize(("path", "stream"), ENDPOINTS)
def test_a_wait_in_the_queue_ends_in_429(path: str, stream: bool) -> None:
    async def main() -> None:
        scripted = engine(queue_timeout_s=0.001)
        async with client_of(scripted) as client:
            (first,) = await occupied(client, "ultrafast", 1)
            second = asyncio.create_task(client.post(path, ask(stream=stream)))
            while not second.done():
                scripted.interrupt()  # bursts end; none of them frees the slot
                await asyncio.sleep(0)
            check_refused(second.result())
            assert "within 0.001 s" in second.result().error["message"]
            scripted.allow(None)
            check_served(await first, by="ultrafast", asked="ultrafast")
            await nobody_left(client)

    run(main())


@pytest.mark.parametrize(("path", "stream"), ENDPOINTS)
def test_a_client_gone_while_queued_leaves_its_place(path: str, stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        scripted = engine()
        async with client_of(scripted) as client:
            (first,) = await occupied(client, "ultrafast", 1)
            hang_up = asyncio.Event()
            second = asyncio.create_task(client.post(path, ask(stream=stream), hang_up=hang_up))
            while not client.loop.admission.num_waiting("ultrafast"):
                await asyncio.sleep(0)
            hang_up.set()
            assert (await second).status == 499
            while client.loop.admission.num_waiting("ultrafast"):
                await asyncio.sleep(0)
            third = asyncio.create_task(client.post(path, ask(stream=stream)))
            scripted.allow(None)
            check_served(await first, by="ultrafast", asked="ultrafast")
            check_served(await third, by="ultrafast", asked="ultrafast")
            await nobody_left(client)

    run(main())
    assert not caplog.records


@pytest.mark.parametrize("stream", [False, True])
def test_all_choices_or_none(stream: bool) -> None:
    async def main() -> None:
        scripted = engine()
        async with client_of(scripted) as client:
            (first,) = await occupied(client, "ultrafast", 1)
            refused = await client.post(CHAT, ask(n=2, stream=stream))
            check_refused(refused)
            assert "no room for 2 at once" in refused.error["message"]
            never = await client.post(CHAT, ask(n=3, stream=stream))
            assert (never.status, never.error["param"]) == (400, "n")
            scripted.allow(None)
            await first
            await nobody_left(client)
            assert len(scripted.requests) == 1
            answer = await client.post(CHAT, ask(n=2, stream=stream))
            assert answer.status == 200
            assert answer.headers["x-ultrafast-tier"] == "ultrafast"
            await nobody_left(client)

    run(main())


@pytest.mark.parametrize(("path", "stream"), ENDPOINTS)
def test_a_deadline_before_the_first_token(path: str, stream: bool) -> None:
    """While it waits for its slot a stream has no head yet, so that it too is an answer with status 408."""

    async def main() -> None:
        scripted = engine()
        async with client_of(scripted) as client:
            (first,) = await occupied(client, "ultrafast", 1)
            second = asyncio.create_task(client.post(path, ask(stream=stream, deadline_s=0.001)))
            while not second.done():
                scripted.interrupt()
                await asyncio.sleep(0)
            answer = second.result()
            assert (answer.status, answer.error["code"], answer.error["param"]) == (
                408,
                "deadline_exceeded",
                "deadline_s",
            )
            scripted.allow(None)
            await first
            await nobody_left(client)

    run(main())


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_a_deadline_cuts_an_answer_as_a_limit_would(path: str) -> None:
    async def main() -> None:
        scripted = engine()
        async with client_of(scripted) as client:
            task = asyncio.create_task(client.post(path, ask(deadline_s=1000)))
            scripted.allow(2)
            while scripted.num_steps < 2:
                await asyncio.sleep(0)
            (stream,) = client.loop._active.values()
            stream.deadline = 0.0  # it has come
            scripted.interrupt()
            answer = (await task).json()
            if path == CHAT:
                assert answer["choices"][0]["finish_reason"] == "length"
                assert answer["choices"][0]["message"]["content"] == text_of(2)
                assert answer["usage"]["completion_tokens"] == 2
            else:
                assert answer["status"] == "incomplete"
                assert answer["usage"]["output_tokens"] == 2
            await nobody_left(client)

    run(main())


def domains(isolation: Isolation, *asks: tuple[dict[str, str], dict[str, Any]]) -> list[str]:
    """The domain that each of some (headers, fields) ends up in."""
    scripted = ScriptedEngine()

    async def main() -> None:
        async with client_of(scripted, isolation=isolation) as client:
            for path in (CHAT, RESPONSES):
                for headers, fields in asks:
                    assert (await client.post(path, ask(**fields), headers=headers)).status == 200

    run(main())
    salts = [request.cache_salt for request in scripted.requests]
    assert salts[: len(asks)] == salts[len(asks) :], "the same over both endpoints"
    return salts[: len(asks)]


ALICE, BOB = {"authorization": "Bearer alice"}, {"authorization": "Bearer bob"}


def test_without_isolation_only_the_salt_separates() -> None:
    alice, bob, salted = domains(Isolation.NONE, (ALICE, {}), (BOB, {"tier": "fast"}), (BOB, {"cache_salt": "s"}))
    assert alice == bob == ""
    assert salted == "s"


def test_isolation_by_tier() -> None:
    alice, bob, fast, salted = domains(
        Isolation.TIER, (ALICE, {}), (BOB, {}), (ALICE, {"tier": "fast"}), (ALICE, {"cache_salt": "s"})
    )
    assert alice == bob
    assert len({alice, fast, salted}) == 3


def test_isolation_by_key_keeps_no_key() -> None:
    alice, again, bob, nobody, salted = domains(
        Isolation.KEY, (ALICE, {}), (ALICE, {"tier": "fast"}), (BOB, {}), ({}, {}), (ALICE, {"cache_salt": "s"})
    )
    assert alice == again
    assert len({alice, bob, nobody, salted}) == 4
    assert "alice" not in alice


def test_several_models_are_served_side_by_side() -> None:
    async def main() -> None:
        first, second = ScriptedEngine("one"), ScriptedEngine("two")
        second.model_id = "other"
        async with client_of(first, second) as client:
            models = (await client.get("/v1/models")).json()
            assert [model["id"] for model in models["data"]] == ["scripted", "other"]
            assert (models["first_id"], models["last_id"]) == ("scripted", "other")
            assert (await client.get("/v1/models/other")).json()["id"] == "other"
            for path in (CHAT, RESPONSES):
                for model, script in (("scripted", "one"), ("other", "two")):
                    answer = await client.post(path, ask(model=model))
                    assert answer.json()["model"] == model
                    assert script in answer.body.decode()
            assert (await client.get("/health")).json() == {
                "status": "ok",
                "models": ["scripted", "other"],
                "running": 0,
                "waiting": 0,
            }
            missing = await client.post(CHAT, ask(model="third"))
            assert missing.status == 404
            assert "'scripted', 'other'" in missing.error["message"]
            await asyncio.gather(*(loop.drain() for loop in client.app.state.loops.values()))
            assert (await client.get("/health")).status == 503

    run(main())
