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
from hypothesis import given
from hypothesis import strategies as st

from support.scripted_engine import ScriptedEngine
from support.served import served
from ultrafast.bench.ab.gateway import answer, body
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


def test_a_stream_comes_through_byte_for_byte() -> None:
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
    assert _without_ids(through) == _without_ids(direct)
    assert (call.tier_asked, call.tier_served, call.outcome) == ("ultrafast", "ultrafast", Outcome.OK)
    assert call.output_tokens == 12
    assert call.prompt_tokens is not None
    assert call.intended_s <= call.sent_s <= call.first_token_s <= call.last_token_s <= call.done_s  # type: ignore[operator]
    assert call.finish_reason == "length"


def _without_ids(stream: bytes) -> list[Any]:
    """Events; what differs from request to request (id, created) taken out."""
    events = [line[6:] for line in stream.split(b"\n\n") if line]
    shown = [json.loads(event) if event != b"[DONE]" else "[DONE]" for event in events]
    return [{k: v for k, v in e.items() if k not in ("id", "created")} if isinstance(e, dict) else e for e in shown]


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


def test_what_anthropic_says() -> None:
    events = [
        {
            "type": "message_start",
            "message": {"model": "m", "usage": {"input_tokens": 4, "cache_read_input_tokens": 6}},
        },
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    call = Call("1", {}, "fast", 0.0)
    pieces = [(float(n), b"event: x\ndata: " + json.dumps(e).encode() + b"\n\n") for n, e in enumerate(events)]
    answer.read_body(call, pieces, "text/event-stream")
    assert (call.prompt_tokens, call.cached_tokens, call.output_tokens) == (10, 6, 9)
    assert (call.finish_reason, call.first_token_s, call.model_served) == ("end_turn", 1.0, "m")


@given(st.lists(st.tuples(st.floats(0, 10), st.binary(max_size=60)), max_size=8), st.booleans())
def test_any_answer_can_be_read(pieces: list[tuple[float, bytes]], streams: bool) -> None:
    answer.read_body(Call("1", {}, None, 0.0), pieces, "text/event-stream" if streams else "application/json")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "usage", "delta", "response", "message", "error", "type", "status", "text", "id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_can_be_read(value: object) -> None:
    raw = b"data: " + json.dumps(value).encode() + b"\n\n"
    answer.read_body(Call("1", {}, None, 0.0), [(0.0, raw)], "text/event-stream")
    answer.read_body(Call("1", {}, None, 0.0), [(0.0, raw[6:])], "application/json")
    body.for_arm(raw[6:], "chat/completions", {"service_tier": "ultrafast"})


@given(st.binary(max_size=80))
def test_any_body_goes_out(raw: bytes) -> None:
    assert body.for_arm(raw, "chat/completions", {}).raw == raw


@given(st.lists(st.integers(1, 40)))
def test_the_usage_chunk_is_found_however_the_stream_is_cut(cuts: list[int]) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'
    text = b'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}\r\n\r\n: note\n\n'
    stream, through, sieve = text + usage + b"data: [DONE]\n\nleft", b"", body.UsageFilter()
    for cut in [*cuts, len(stream)]:
        through, stream = through + sieve.feed(stream[:cut]), stream[cut:]
    assert through + sieve.end() == text + b"data: [DONE]\n\nleft"
