"""What is found at an address: ours, somebody else's, nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.scripted_engine import ScriptedEngine, with_tiers
from support.served import served
from ultrafast.bench.client.discover import Found, discover
from ultrafast.bench.client.endpoint import Price
from ultrafast.errors import ServerError


async def at(answers: dict[str, tuple[int, bytes]], use: Callable[[str], Any]) -> Any:
    """What comes of asking a server that has these answers, by path."""
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head)
        status, body = answers.get(head.split(b" ")[1].decode(), (404, b"{}"))
        writer.write(b"HTTP/1.1 %d x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        found = await use(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    return found, seen


def found_in(answers: dict[str, tuple[int, bytes]], *, api_key: str | None = None, model: str | None = None) -> Found:
    found, seen = asyncio.run(at(answers, lambda url: discover(url, api_key=api_key, model=model)))
    assert all((b"Bearer secret" in head) == (api_key == "secret") for head in seen)
    assert isinstance(found, Found)
    return found


def models(*names: str) -> dict[str, tuple[int, bytes]]:
    return {"/v1/models": (200, json.dumps({"object": "list", "data": [{"id": name} for name in names]}).encode())}


def test_our_own_server() -> None:
    with served(ScriptedEngine(tiers=with_tiers(fast={"price": 2.5}))) as server:
        found = asyncio.run(discover(server.url, api_key=None))
        assert (found.model, found.is_ours) == ("scripted", True)
        assert found.prices["fast"] == Price(2.5, 2.5, is_relative=True)
        assert set(found.prices) == {"ultrafast", "fast", "default", "flex"}
        assert asyncio.run(discover(server.url + "/", api_key=None, model="scripted")) == found
        with pytest.raises(ServerError, match=r"has no model 'other'; it has 'scripted'"):
            asyncio.run(discover(server.url, api_key=None, model="other"))


def test_another_server() -> None:
    assert found_in(models("a", "b"), api_key="secret") == Found("a")
    assert found_in(models("a", "b"), model="b") == Found("b")
    assert found_in(models("a"), model="an alias") == Found("an alias")
    assert found_in({}, model="a") == Found("a")  # it lists none
    assert found_in({**models("a"), "/v1/tiers": (200, b"<html>")}) == Found("a")


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({}, r"/v1/models answered 404: .*; is the address right"),
        ({"/v1/models": (401, b'{"error": {"message": "no key"}}')}, r"answered 401: no key; put the key into"),
        (models(), r"lists no model; say which to ask with --model"),
        ({"/v1/models": (200, b"<html>")}, r"/v1/models is no list of models: .*; is the address right"),
        ({"/v1/models": (200, b"[" * 100_000)}, r"/v1/models is no list of models"),
        ({"/v1/models": (500, b"")}, r"/v1/models answered 500: without a word"),
    ],
)
def test_nothing_to_ask(answers: dict[str, tuple[int, bytes]], problem: str) -> None:
    with pytest.raises(ServerError, match=problem):
        found_in(answers)


def test_nobody() -> None:
    with pytest.raises(ServerError, match=r"no server answers at http://127\.0\.0\.1:9/v1/models \(.*\); say where"):
        asyncio.run(discover("http://127.0.0.1:9/v1", api_key=None))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(status=st.sampled_from([200, 404, 500]), listed=st.binary(max_size=40), tiers=st.binary(max_size=40))
def test_any_answer(status: int, listed: bytes, tiers: bytes) -> None:
    with suppress(ServerError):
        assert found_in({"/v1/models": (status, listed), "/v1/tiers": (200, tiers)}).model
