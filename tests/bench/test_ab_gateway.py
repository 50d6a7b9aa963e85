"""The gateway: what goes through it is what would have come without it, and what it writes down is what went."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from support.scripted_engine import ScriptedEngine
from support.served import served
from ultrafast.bench.ab.gateway import answer
from ultrafast.bench.ab.gateway.server import Gateway, Tap
from ultrafast.bench.client.call import Call, Outcome
from ultrafast.bench.client.endpoint import Endpoint

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
QUESTION = {"model": "any", "messages": [{"role": "user", "content": "How fast?"}], "max_tokens": 12, "seed": 1}


@asynccontextmanager
async def upstream(handler: Handler) -> AsyncIterator[str]:
    """An endpoint of the test's own."""
    app = web.Application()
    app.router.add_route("*", "/v1/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    await runner.cleanup()


@asynccontextmanager
async def tapped(
    url: str, *, tier: str | None = "ultrafast", key: str | None = None
) -> AsyncIterator[tuple[Gateway, Tap, aiohttp.ClientSession]]:
    async with Gateway(time.monotonic()) as gateway, aiohttp.ClientSession() as client:
        endpoint = Endpoint(url, "scripted", tier=tier, api_key=key)
        yield gateway, gateway.open(endpoint, task="a task/1", arm="A"), client


def test_a_stream_says_what_it_says_without_the_gateway() -> None:
    asked = QUESTION | {"stream": True, "stream_options": {"include_usage": True}, "service_tier": "ultrafast"}
    kept = (b'"choices"', b'"usage"', b"[DONE]")

    async def talk(url: str) -> tuple[bytes, bytes, Call]:
        async with tapped(url) as (gateway, tap, client):
            async with client.post(f"{url}/chat/completions", json=asked | {"model": "scripted"}) as response:
                direct = await response.read()
            async with client.post(f"{tap.base_url}/chat/completions", json=asked) as response:
                through = await response.read()
                assert response.headers["content-type"].startswith("text/event-stream")
            (call,) = await gateway.close(tap)
            return direct, through, call

    with served(ScriptedEngine()) as server:
        direct, through, call = asyncio.run(talk(server.url))
    assert all(word in through for word in kept)
    assert _told(through) == _told(direct)
    assert (call.tier_asked, call.tier_served, call.outcome) == ("ultrafast", "ultrafast", Outcome.OK)
    assert call.output_tokens == 12
    assert call.prompt_tokens is not None
    assert call.intended_s <= call.sent_s <= call.first_token_s <= call.last_token_s <= call.done_s  # type: ignore[operator]
    assert call.finish_reason == "length"


def _told(stream: bytes) -> tuple[str, list[Any], bytes]:
    """What does not depend on how tokens were put into chunks: text, usage, how it ends."""
    chunks = [json.loads(event[6:]) for event in stream.split(b"\n\n") if event.startswith(b"data: {")]
    return answer.text_of(stream), [chunk["usage"] for chunk in chunks if chunk.get("usage")], stream[-14:]


def test_usage_is_asked_for_and_kept_from_a_workflow_that_did_not_ask() -> None:
    async def talk(url: str) -> tuple[bytes, Call]:
        async with tapped(url) as (gateway, tap, client):
            async with client.post(f"{tap.base_url}/chat/completions", json=QUESTION | {"stream": True}) as response:
                through = await response.read()
            return through, (await gateway.close(tap))[0]

    with served(ScriptedEngine()) as server:
        through, call = asyncio.run(talk(server.url))
    assert call.output_tokens == 12
    chunks = [json.loads(line[6:]) for line in through.split(b"\n\n") if line.startswith(b"data: {")]
    assert all(chunk["choices"] for chunk in chunks)
    assert through.endswith(b"data: [DONE]\n\n")


def test_bytes_are_not_touched_whatever_they_are() -> None:
    pieces = [b'data: {"x":', b" 1}\r\n\r\ndata: \xff\xfe\n\n", b": comment\n\nda", b"ta: [DO", b"NE]\n\nrest"]
    received: list[tuple[bytes, dict[str, str]]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        received.append((await request.read(), dict(request.headers)))
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-own": "1"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0)
        return response

    raw = b'{"service_tier": "flex",  "n": 1.0, "text": "\\u00e9 \xc3\xa9", "big": 123456789012345678901234567890}'

    async def talk() -> bytes:
        async with upstream(handler) as url, tapped(url, key="sk-arm") as (_, tap, client):
            headers = {"content-type": "application/json", "authorization": "Bearer own", "x-mine": "2"}
            async with client.post(f"{tap.base_url}/responses?a=b", data=raw, headers=headers) as response:
                assert response.headers["x-own"] == "1"
                return await response.read()

    assert asyncio.run(talk()) == b"".join(pieces)
    sent, headers = received[0]
    assert b'"text":"\\u00e9 \xc3\xa9"' in sent
    assert b'"big":123456789012345678901234567890' in sent
    assert json.loads(sent)["service_tier"] == "ultrafast"
    assert (headers["Authorization"], headers["x-mine"]) == ("Bearer sk-arm", "2")


def test_nothing_is_held_back() -> None:
    """The endpoint sends its second piece only once the workflow has its first."""
    seen = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
        await asyncio.wait_for(seen.wait(), 10)
        await response.write(b"data: [DONE]\n\n")
        return response

    async def talk() -> Call:
        async with upstream(handler) as url, tapped(url) as (gateway, tap, client):
            async with client.post(f"{tap.base_url}/chat/completions", json={"stream": True}) as response:
                assert await response.content.readany()
                seen.set()
                await response.read()
            return (await gateway.close(tap))[0]

    assert asyncio.run(talk()).outcome is Outcome.OK


@pytest.mark.parametrize("leaves", [True, False])
def test_who_leaves_stops_the_endpoint(leaves: bool) -> None:
    """Whether the workflow hangs up, or its run is ended from outside."""
    stopped = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
                await asyncio.sleep(0.005)
        finally:
            stopped.set()

    async def talk() -> Call:
        async with upstream(handler) as url, tapped(url) as (gateway, tap, client):
            response = await client.post(f"{tap.base_url}/chat/completions", json={"stream": True})
            await response.content.readany()
            if leaves:
                response.close()
            else:
                await gateway.close(tap)
            await asyncio.wait_for(stopped.wait(), 10)
            return (await gateway.close(tap))[0]

    call = asyncio.run(talk())
    assert call.outcome is Outcome.CANCELLED
    assert call.first_token_s is not None
    assert call.done_s is not None


def test_a_run_that_is_over_and_an_endpoint_that_is_gone() -> None:
    async def talk() -> list[int]:
        async with tapped("http://127.0.0.1:9/v1") as (gateway, tap, client):
            statuses = [(await client.post(f"{tap.base_url}/responses", json={})).status]
            (call,) = await gateway.close(tap)
            assert (call.outcome, call.tier_served) == (Outcome.BROKEN, None)
            statuses.append((await client.post(f"{tap.base_url}/responses", json={})).status)
            return statuses

    assert asyncio.run(talk()) == [502, 404]


def test_a_stream_that_breaks_off_breaks_off() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
        assert request.transport is not None
        request.transport.close()
        return response

    async def talk() -> Call:
        async with upstream(handler) as url, tapped(url) as (gateway, tap, client):
            with pytest.raises(aiohttp.ClientError):
                async with client.post(f"{tap.base_url}/chat/completions", json={"stream": True}) as response:
                    await response.read()
            return (await gateway.close(tap))[0]

    assert asyncio.run(talk()).outcome is Outcome.BROKEN


@pytest.mark.parametrize(("status", "outcome"), [(429, Outcome.REFUSED), (503, Outcome.REFUSED), (400, Outcome.ERROR)])
def test_refusals_go_through_and_count(status: int, outcome: Outcome) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no room"}}, status=status, headers={"retry-after": "3"})

    async def talk() -> Call:
        async with upstream(handler) as url, tapped(url) as (gateway, tap, client):
            response = await client.post(f"{tap.base_url}/chat/completions", json=QUESTION)
            assert (response.status, response.headers["retry-after"]) == (status, "3")
            assert (await response.json())["error"]["message"] == "no room"
            return (await gateway.close(tap))[0]

    call = asyncio.run(talk())
    assert (call.outcome, call.status, call.error) == (outcome, status, "no room")


def test_a_tier_that_was_not_served_is_told() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert (await request.json())["service_tier"] == "ultrafast"
        return web.json_response({"service_tier": "default", "usage": {"prompt_tokens": 5, "completion_tokens": 3}})

    async def talk() -> Call:
        async with upstream(handler) as url, tapped(url) as (gateway, tap, client):
            await client.post(f"{tap.base_url}/chat/completions", json=QUESTION)
            return (await gateway.close(tap))[0]

    call = asyncio.run(talk())
    assert (call.tier_asked, call.tier_served, call.prompt_tokens, call.output_tokens) == ("ultrafast", "default", 5, 3)


def test_a_cold_run_shares_no_cache() -> None:
    salts: list[str | None] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        salts.append((await request.json()).get("cache_salt"))
        return web.json_response({})

    async def talk() -> None:
        async with upstream(handler) as url, tapped(url) as (gateway, warm, client):
            cold = [gateway.open(warm.endpoint, task="t", arm="A", cold=True) for _ in range(2)]
            for tap in (warm, *cold, cold[0]):
                await client.post(f"{tap.base_url}/chat/completions", json=QUESTION)

    asyncio.run(talk())
    assert salts[0] is None
    assert len({*salts[1:3]}) == 2
    assert salts[3] == salts[1]


def test_responses_over_a_websocket() -> None:
    create = {"type": "response.create", "model": "any", "input": "How fast?", "max_output_tokens": 8}

    async def talk(url: str) -> list[Call]:
        async with tapped(url) as (gateway, tap, client):
            async with client.ws_connect(f"{tap.base_url}/responses") as socket:
                for _ in range(2):
                    await socket.send_json(create)
                    while (await socket.receive_json())["type"] not in ("response.completed", "response.incomplete"):
                        pass
            return await gateway.close(tap)

    with served(ScriptedEngine()) as server:
        calls = asyncio.run(talk(server.url))
    assert [(c.tier_served, c.output_tokens, c.outcome) for c in calls] == [("ultrafast", 8, Outcome.OK)] * 2
    assert all(c.sent_s <= c.first_token_s <= c.done_s for c in calls)  # type: ignore[operator]
