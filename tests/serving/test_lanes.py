"""What `GET /v1/tiers` says of a server at work and at rest."""

from __future__ import annotations

import asyncio
from typing import Any

from support.asgi import Answer, Client, client_of
from support.scripted_engine import ScriptedEngine, with_tiers
from ultrafast.engine.tiers import DEFAULT_TIERS, TIERS

LANE: dict[str, Any] = {
    "tier": str,
    "slots": int,
    "running": int,
    "queued": int,
    "queue": int,
    "overflow": str,
    "queue_timeout_s": float,
    "speculation": bool,
    "price": float,
    "tokens_per_s": float,
    "tokens_per_s_per_request": float | None,
    "ttft_ms": float | None,
    "served": int,
    "refused": int,
    "downgraded": int,
    "cancelled": int,
    "acceptance": float | None,
}
CACHE: dict[str, Any] = {
    "blocks": int,
    "free_blocks": int,
    "cached_blocks": int,
    "block_tokens": int,
    "bytes_per_block": int,
    "prompt_tokens": int,
    "cached_tokens": int,
}
REQUEST: dict[str, Any] = {
    "id": str,
    "tier": str,
    "asked": str,
    "state": str,
    "prompt_tokens": int,
    "output_tokens": int,
    "cached_tokens": int,
    "tokens_per_s": float | None,
    "acceptance": float | None,
    "age_s": float,
}


def run(main: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await main

    asyncio.run(bounded())


def ask(tier: str) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "service_tier": tier}


async def model_of(client: Client) -> dict[str, Any]:
    answer = await client.get("/v1/tiers")
    assert answer.status == 200
    body = answer.json()
    assert set(body) == {"object", "data"}
    assert body["object"] == "list"
    (model,) = body["data"]
    assert isinstance(model, dict)
    return model


async def until(client: Client, condition: Any) -> dict[str, Any]:
    while not condition(model := await model_of(client)):
        await asyncio.sleep(0)
    return model


def has_shape(found: dict[str, Any], shape: dict[str, Any]) -> None:
    assert list(found) == list(shape)
    for name, kind in shape.items():
        assert isinstance(found[name], kind), (name, found[name])


def test_an_idle_server_shows_its_policies_and_zeros() -> None:
    async def main() -> None:
        async with client_of(ScriptedEngine()) as client:
            model = await model_of(client)
            assert list(model) == ["model", "share", "lanes", "cache", "requests"]
            assert (model["model"], model["share"], model["requests"]) == ("scripted", DEFAULT_TIERS.share, [])
            assert [lane["tier"] for lane in model["lanes"]] == list(TIERS)
            for lane in model["lanes"]:
                has_shape(lane, LANE)
                assert lane["overflow"] == DEFAULT_TIERS.policies[lane["tier"]].overflow.value
                assert lane["tokens_per_s"] == lane["running"] == lane["queued"] == lane["served"] == 0
            has_shape(model["cache"], CACHE)

    run(main())


def test_requests_are_seen_from_arrival_to_end() -> None:
    async def main() -> None:
        engine = ScriptedEngine(num_slots=1, paced=True)
        async with client_of(engine) as client, asyncio.TaskGroup() as group:
            headers = {"x-request-id": "mine"}
            first = group.create_task(client.post("/v1/chat/completions", ask("default"), headers=headers))
            await until(client, lambda m: m["lanes"][2]["running"] == 1)
            second = group.create_task(client.post("/v1/chat/completions", ask("default")))
            model = await until(client, lambda m: m["lanes"][2]["queued"] == 1)
            runs, waits = model["requests"]
            for request in (runs, waits):
                has_shape(request, REQUEST)
            assert (runs["id"], runs["tier"], runs["asked"]) == ("mine", "default", "default")
            assert (runs["state"], waits["state"]) == ("prefill", "queued")
            assert waits["id"].startswith("req_")
            engine.allow(1)
            model = await until(client, lambda m: m["requests"][0]["state"] == "decode")
            assert model["requests"][0]["output_tokens"] == 1
            engine.allow(None)
            await asyncio.wait([first, second])
            model = await model_of(client)
            assert model["requests"] == []
            lane = model["lanes"][2]
            assert (lane["served"], lane["running"], lane["queued"]) == (2, 0, 0)
            assert lane["tokens_per_s"] > 0
            assert lane["ttft_ms"] > 0
            assert [lane["served"] for lane in model["lanes"]] == [0, 0, 2, 0]
            assert model["cache"]["prompt_tokens"] == runs["prompt_tokens"] + waits["prompt_tokens"]

    run(main())


def test_a_client_that_left_is_counted() -> None:
    async def main() -> None:
        async with client_of(ScriptedEngine(paced=True)) as client, asyncio.TaskGroup() as group:
            gone = asyncio.Event()
            group.create_task(client.post("/v1/chat/completions", ask("fast"), hang_up=gone))
            await until(client, lambda m: m["lanes"][1]["running"] == 1)
            gone.set()
            await until(client, lambda m: m["lanes"][1]["cancelled"] == 1)
            model = await model_of(client)
            assert (model["lanes"][1]["running"], model["requests"]) == (0, [])

    run(main())


def test_looking_does_not_wake_the_engine() -> None:
    async def main() -> None:
        engine = ScriptedEngine(paced=True)
        interrupts: list[None] = []
        engine.interrupt = lambda: interrupts.append(None)  # type: ignore[method-assign]
        async with client_of(engine) as client:
            await model_of(client)
            assert interrupts == []
            assert engine.num_steps == 0

    run(main())


def test_refusals_and_downgrades_are_counted_for_the_tier_that_was_asked_for() -> None:
    async def main() -> None:
        tiers = with_tiers(fast={"slots": 1}, flex={"slots": 2}, ultrafast={"slots": 1, "queue_timeout_s": 0.01})
        engine = ScriptedEngine(tiers=tiers, paced=True)
        async with client_of(engine) as client, asyncio.TaskGroup() as group:

            def send(tier: str, **fields: Any) -> asyncio.Task[Answer]:
                return group.create_task(client.post("/v1/chat/completions", ask(tier) | fields))

            for tier in ("ultrafast", "fast", "flex"):
                send(tier)
            await until(client, lambda m: [lane["running"] for lane in m["lanes"]] == [1, 1, 0, 1])
            assert (await send("flex", n=2)).status == 429
            waits_in_vain = send("ultrafast")
            send("fast")  # goes on as default
            model = await until(client, lambda m: m["lanes"][2]["running"] == 1)
            downgraded = next(request for request in model["requests"] if request["tier"] == "default")
            assert downgraded["asked"] == "fast"
            while not waits_in_vain.done():
                engine.allow(0)  # time limits are looked at once a turn
                engine.interrupt()
                await asyncio.sleep(0)
            assert (await waits_in_vain).status == 429
            model = await model_of(client)
            assert [lane["refused"] for lane in model["lanes"]] == [1, 0, 0, 2]
            assert [lane["downgraded"] for lane in model["lanes"]] == [0, 1, 0, 0]
            assert [lane["cancelled"] for lane in model["lanes"]] == [0, 0, 0, 0]
            engine.allow(None)

    run(main())
