"""Two hundred clients that connect, read slowly and vanish at random: nothing is left of them."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from support.idle import needs_proc

NUM_CLIENTS = 200
PATHS = {"/v1/chat/completions": "messages", "/v1/responses": "input", "/v1/messages": "messages"}
SLACK_BYTES = 24 << 20  # allocators keep some of what a crowd needed; a lost stream each would be much more


@pytest.fixture
def program(tiny_model_path: Path) -> Iterator[tuple[psutil.Process, str]]:
    """A server of the tiny model, and its address."""
    command = [sys.executable, "-c", "from ultrafast.cli.main import main; main()", "serve", "--port", "0"]
    with subprocess.Popen([*command, "--model", str(tiny_model_path)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = re.search(r"http://\S+(?=/v1)", process.stdout.readline())
            assert ready
            yield psutil.Process(process.pid), ready[0]
        finally:
            process.kill()


class Visitor:
    """One client, whose ways its number decides."""

    def __init__(self, url: str, model: str, seed: int) -> None:
        self._where = urlsplit(url)
        self._rng = random.Random(seed)
        self._model = model

    def _request(self) -> bytes:
        path, field = self._rng.choice(sorted(PATHS.items()))
        text = "x" * self._rng.choice([1, 100, 3000])
        conversation = text if field == "input" else [{"role": "user", "content": text}]
        body: dict[str, Any] = {"model": self._model, field: conversation, "stream": self._rng.random() < 0.8}
        limit = "max_output_tokens" if field == "input" else "max_tokens"
        body[limit] = self._rng.choice([1, 50, 1000])
        body["service_tier"] = self._rng.choice(["auto", "auto", "flex", "priority"])
        raw = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(raw)}\r\n\r\n"
        return head.encode() + raw

    async def visit(self) -> None:
        reader, writer = await asyncio.open_connection(self._where.hostname, self._where.port, limit=4096)
        try:
            request = self._request()
            manner = self._rng.choice(["leave", "half", "slow", "some", "whole"])
            writer.write(request[: len(request) // 2] if manner == "half" else request)
            await writer.drain()
            if manner == "slow":
                for _ in range(self._rng.randrange(40)):
                    await reader.read(16)
                    await asyncio.sleep(0.01)
            elif manner == "some":
                await reader.read(self._rng.randrange(1, 20_000))
            elif manner == "whole":
                await self._read_whole(reader)
            if self._rng.random() < 0.5:
                writer.transport.abort()  # a reset in place of a farewell
        finally:
            writer.close()

    @staticmethod
    async def _read_whole(reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if sized := re.search(rb"content-length: (\d+)", head):
            await reader.readexactly(int(sized[1]))
            return
        while size := int(await reader.readline(), 16):  # chunked
            await reader.readexactly(size + 2)


async def crowd(url: str, model: str, seed: int) -> None:
    visitors = [Visitor(url, model, seed * NUM_CLIENTS + number) for number in range(NUM_CLIENTS)]
    async with asyncio.timeout(120):
        await asyncio.gather(*(visitor.visit() for visitor in visitors))


def lanes_when_idle(url: str) -> dict[str, Any]:
    """What the lanes say once nobody runs or waits."""
    pause = threading.Event()
    for _ in range(1200):
        (lanes,) = httpx.get(f"{url}/v1/tiers").json()["data"]
        if not lanes["requests"]:
            return dict(lanes)
        pause.wait(0.05)
    raise AssertionError(f"never idle: {lanes['requests']}")


@needs_proc
def test_a_crowd_leaves_nothing_behind(program: tuple[psutil.Process, str]) -> None:
    process, url = program
    model = httpx.get(f"{url}/v1/models").json()["data"][0]["id"]
    asyncio.run(crowd(url, model, seed=1))
    lanes_when_idle(url)
    resident, sockets = process.memory_info().rss, len(process.net_connections())
    asyncio.run(crowd(url, model, seed=2))
    lanes = lanes_when_idle(url)
    cache = lanes["cache"]
    assert cache["free_blocks"] + cache["cached_blocks"] == cache["blocks"]
    assert all((lane["running"], lane["queued"]) == (0, 0) for lane in lanes["lanes"])
    assert process.memory_info().rss < resident + SLACK_BYTES
    assert len(process.net_connections()) <= sockets + 1
    ask = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
    assert httpx.post(f"{url}/v1/chat/completions", json=ask).status_code == 200
