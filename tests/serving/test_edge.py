"""Around the endpoints: hosts, origins, ids, unknown paths, faults, health, vanished and slow clients."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from support.asgi import Answer, Client, client_of
from support.scripted_engine import ScriptedEngine, text_of
from ultrafast.serving.edge import Edge
from ultrafast.serving.generate import LARGE_BODY
from ultrafast.serving.wire import body as body_module

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
ASK: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}], "input": "Hi"}


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(20):
            return await main

    return asyncio.run(bounded())


def get(path: str = "/health", *, method: str = "GET", loopback_only: bool = True, **headers: str) -> Answer:
    async def main() -> Answer:
        async with client_of(ScriptedEngine(), loopback_only=loopback_only) as client:
            return await client.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    answer: Answer = run(main())
    return answer


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:8000", "127.1.2.3", "[::1]", "[::1]:8000"])
def test_loopback_hosts_are_served(host: str) -> None:
    assert get(host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "", "localhost.evil.example", "127.0.0.1.evil.example", "[::1", "1.2.3.4"],
)
def test_other_hosts_are_refused_on_loopback_only(host: str) -> None:
    refused = get(host=host)
    assert refused.status == 403
    assert refused.error["code"] == "host_not_allowed"
    assert get(host=host, loopback_only=False).status == 200


def test_pages_of_other_sites_are_refused() -> None:
    assert get(origin="https://evil.example").status == 403
    assert get(origin="null").status == 403
    assert get(origin="http://localhost:3000").status == 200


def test_no_cors() -> None:
    for answer in (get(origin="http://localhost:3000"), get(CHAT, method="OPTIONS", origin="http://localhost:3000")):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_request_ids() -> None:
    assert get().headers["x-request-id"].startswith("req_")
    assert get(x_request_id="trace-1.2:3_4").headers["x-request-id"] == "trace-1.2:3_4"
    for bad in ("a b", "x" * 129, "é", "a;b", ""):
        assert get(x_request_id=bad).headers["x-request-id"].startswith("req_")
    assert get("/nope", x_request_id="mine").headers["x-request-id"] == "mine"
    assert get().headers["openai-processing-ms"].isdecimal()


def test_unknown_paths_and_methods_have_openais_shape() -> None:
    missing = get("/v1/nope")
    assert missing.status == 404
    assert "GET /v1/nope" in missing.error["message"]
    wrong = get(CHAT)
    assert wrong.status == 405
    assert "POST" in wrong.error["message"]
    assert "POST" in wrong.headers["allow"]
    assert get("/v1/models/").status == 404
    assert get("/v1/models/../../etc/passwd").status == 404


def test_a_fault_of_ours_is_500_and_disturbs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        async with client_of(engine) as client:
            with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
                patch.setattr(engine, "encode_prompt", lambda prompt: 1 / 0)
                broken = await client.post(CHAT, ASK, headers={"x-request-id": "abc"})
            assert broken.status == 500
            assert broken.error["type"] == "server_error"
            assert "abc" in broken.error["message"]
            assert "ZeroDivision" not in broken.body.decode()
            assert "abc" in caplog.text
            assert (await client.post(CHAT, ASK)).status == 200

    run(main())


def test_a_fault_after_the_first_byte_cuts_the_connection() -> None:
    async def main() -> None:
        sent: list[Any] = []

        async def broken(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise ZeroDivisionError

        async def send(message: Any) -> None:
            sent.append(message["type"])

        with pytest.raises(ZeroDivisionError):
            await Edge(broken, loopback_only=False)({"type": "http", "headers": []}, asyncio.sleep, send)
        assert sent == ["http.response.start"]

    run(main())


def test_health_tells_of_the_queue_and_of_a_drain() -> None:
    async def main() -> None:
        engine = ScriptedEngine(paced=True, num_slots=1)
        async with client_of(engine) as client:
            asks = [asyncio.create_task(client.post(CHAT, ASK)) for _ in range(3)]
            expected = {"status": "ok", "models": ["scripted"], "running": 1, "waiting": 2}
            while (await client.get("/health")).json() != expected:
                await asyncio.sleep(0)
            drain = asyncio.create_task(client.loop.drain())
            while not client.loop.draining:
                await asyncio.sleep(0)
            draining = await client.get("/health")
            assert (draining.status, draining.json()["status"]) == (503, "draining")
            refused = await client.post(CHAT, ASK)
            assert refused.status == 503
            assert int(refused.headers["retry-after"]) >= 1
            engine.allow(None)
            assert [answer.status for answer in await asyncio.gather(*asks)] == [200] * 3
            await drain

    run(main())


async def _slot_freed_after(client: Client, hang_up: asyncio.Event) -> float:
    loop = client.loop
    start = time.monotonic()
    hang_up.set()
    while loop.stats()["running"]:
        await asyncio.sleep(0)
    return time.monotonic() - start


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_a_vanished_client_frees_its_slot(path: str, stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        engine = ScriptedEngine(paced=True)
        async with client_of(engine) as client:
            hang_up = asyncio.Event()
            ask = asyncio.create_task(client.post(path, {**ASK, "stream": stream, "n": 2}, hang_up=hang_up))
            engine.allow(3)
            while engine.num_steps < 3:
                await asyncio.sleep(0)
            assert await _slot_freed_after(client, hang_up) < 0.1
            await ask

    run(main())
    assert not caplog.records, "a client may leave: no fault"


def test_a_reader_that_stalls_holds_no_slot_and_no_other_request() -> None:
    async def main() -> None:
        engine = ScriptedEngine(num_slots=1)
        async with client_of(engine) as client:
            read_on = asyncio.Event()

            async def stall(chunk: bytes) -> None:
                await read_on.wait()

            slow = asyncio.create_task(client.post(CHAT, {**ASK, "stream": True}, on_body=stall))
            while not engine.requests:
                await asyncio.sleep(0)
            assert (await client.post(CHAT, ASK)).status == 200
            assert not slow.done()
            read_on.set()
            events = [data for _, data in (await slow).events()]
            text = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
            assert text == text_of()
            assert len(events) < 10, "what piled up is merged"

    run(main())


def test_a_body_that_ends_early_starts_nothing() -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        async with client_of(engine) as client:
            sent: list[Any] = []

            async def receive() -> dict[str, Any]:
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                sent.append(message)

            scope = {
                "type": "http",
                "method": "POST",
                "path": CHAT,
                "headers": [(b"host", b"localhost")],
                "query_string": b"",
            }
            await client.app(scope, receive, send)
            assert sent[0]["status"] == 400
            assert not engine.requests

    run(main())


def test_a_body_that_dawdles_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(body_module, "BODY_TIMEOUT_S", 0.01)
        async with client_of(ScriptedEngine()) as client:
            client.silent = True
            answer = await client.post(CHAT, ASK)
            assert answer.status == 408
            assert "0 s" in answer.error["message"]

    run(main())


def test_long_prompts_are_tokenised_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        encode, threads = engine.encode_prompt, []

        def watched(prompt: Any, **how: Any) -> list[int]:
            threads.append(threading.current_thread())
            return encode(prompt)[:10]

        monkeypatch.setattr(engine, "encode_prompt", watched)
        async with client_of(engine) as client:
            for length in (1, LARGE_BODY):
                ask = {**ASK, "messages": [{"role": "user", "content": "x" * length}]}
                assert (await client.post(CHAT, ask)).status == 200
        assert [thread is threading.current_thread() for thread in threads] == [True, False]

    run(main())
