"""A client that hardly works while it measures: it keeps what comes and when, and parses it afterwards."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast
from weakref import WeakSet

from tier_cases.timeline import Chunk

Piece = tuple[float, bytes]
"""Seconds on the clock of ``time.perf_counter``, and what the socket had at that moment."""


@dataclass(frozen=True)
class Answer:
    """A streamed answer, or what there is of it.

    Attributes:
        sent: the moment the request was written, on the clock of the chunks.
        status: of HTTP; 0 when the connection ended before the head came.
        headers: names in lower case.
        chunks: those with text.
        error: code or type of an error, as the answer itself or in the midst of the stream.
        complete: the stream came to its end.
    """

    sent: float
    status: int
    headers: Mapping[str, str]
    chunks: tuple[Chunk, ...]
    tier: str | None
    usage: Mapping[str, Any]
    error: str | None
    complete: bool

    @cached_property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def tokens(self) -> int:
        return int(self.usage.get("completion_tokens", 0))

    @property
    def cached_tokens(self) -> int:
        return int((self.usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0))

    def draft_tokens(self, which: str) -> int:
        """Draft tokens that were ``accepted`` or ``rejected``; 0 where the server does not say."""
        details = self.usage.get("completion_tokens_details") or {}
        return int(details.get(f"{which}_prediction_tokens") or 0)

    @property
    def first_token_s(self) -> float:
        """From sending to the first text."""
        return self.chunks[0].at - self.sent

    @property
    def tokens_per_s(self) -> float:
        """After the first token, which is alone in the first chunk."""
        return (self.tokens - 1) / (self.chunks[-1].at - self.chunks[0].at)


def read_answer(sent: float, pieces: Sequence[Piece]) -> Answer:
    """What the pieces of one connection say.

    Frames are looked for by their lines, so the sizes of HTTP's chunks need no parsing: no frame spans two chunks.
    """
    head, _, body = b"".join(data for _, data in pieces).partition(b"\r\n\r\n")
    status_line, *header_lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in header_lines)}
    status = int(status_line.split()[1]) if status_line else 0
    chunks: list[Chunk] = []
    usage: Mapping[str, Any] = {}
    tier, error, complete = None, None, False
    for at, event in _events(pieces):
        if event is None:
            complete = True
            continue
        error = error or _error(event)
        tier = event.get("service_tier", tier)
        usage = event.get("usage") or usage
        if text := "".join(choice["delta"].get("content") or "" for choice in event.get("choices", ())):
            chunks.append(Chunk(at, text))
    if status not in (0, 200):
        error = _error(json.loads(body[body.find(b"{") : body.rfind(b"}") + 1] or b"{}")) or "no error object"
    return Answer(sent, status, headers, tuple(chunks), tier, usage, error, complete)


def _events(pieces: Sequence[Piece]) -> Iterator[tuple[float, dict[str, Any] | None]]:
    """Each event with the moment its last byte came; None is the end."""
    rest = b""
    for at, data in pieces:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                yield at, json.loads(line[6:])
            elif line.startswith(b"data: [DONE]"):
                yield at, None


def _error(body: Mapping[str, Any]) -> str | None:
    error = body.get("error")
    return None if error is None else str(error.get("code") or error.get("type"))


class Call(asyncio.Protocol):
    """One request on a connection of its own, under way."""

    def __init__(self, request: bytes) -> None:
        self.sent = 0.0
        self.pieces: list[Piece] = []
        self._request = request
        self._num_events = 0
        self._begun = asyncio.Event()
        self._ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.sent = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.pieces.append((time.perf_counter(), data))
        if self._num_events < 2:
            self._num_events += data.count(b"data: {")
            if self._num_events >= 2:  # the first names the role, the second brings the first token
                self._begun.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._begun.set()
        self._ended.set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def begun(self) -> None:
        """Wait for the first token, or for the end."""
        await self._begun.wait()

    async def done(self) -> None:
        """Wait for the end."""
        await self._ended.wait()

    async def answer(self) -> Answer:
        """Wait for the end, then read all of it."""
        await self.done()
        return self.read()

    def read(self) -> Answer:
        """What has come so far."""
        return read_answer(self.sent, self.pieces)

    def hang_up(self) -> None:
        """Leave, as a client does that has enough."""
        self._transport.abort()


class Client:
    """Sends requests to a server on the loopback, each on a fresh connection, which is made before the clock starts.

    Args:
        model: the name that the server knows it by.
    """

    def __init__(self, port: int, model: str) -> None:
        self._port = port
        self._model = model
        self._calls: WeakSet[Call] = WeakSet()

    async def close(self) -> None:
        """Hang up all that is still open."""
        for call in self._calls:
            if not call.ended:
                call.hang_up()
        await asyncio.sleep(0.01)  # the event loop closes the sockets

    async def start(self, messages: Sequence[Mapping[str, str]], *, tier: str, max_tokens: int, **fields: Any) -> Call:
        """Send a streamed chat request, greedy unless ``fields`` say otherwise."""
        ask = {"model": self._model, "messages": messages, "service_tier": tier, "max_tokens": max_tokens}
        stream = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        return await self._send("POST", "/v1/chat/completions", json.dumps({**ask, **stream, **fields}).encode())

    async def ask(self, messages: Sequence[Mapping[str, str]], *, tier: str, max_tokens: int, **fields: Any) -> Answer:
        """A streamed chat request and its whole answer.

        Raises:
            RuntimeError: the answer is not a 200 that came to its end.
        """
        return good(await (await self.start(messages, tier=tier, max_tokens=max_tokens, **fields)).answer())

    async def get(self, path: str) -> dict[str, Any] | None:
        """A JSON document; None unless the status is 200."""
        call = await self._send("GET", path, b"")
        await call.done()
        head, _, body = b"".join(data for _, data in call.pieces).partition(b"\r\n\r\n")
        return json.loads(body) if head.split()[1] == b"200" else None

    async def _send(self, method: str, path: str, body: bytes) -> Call:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        call = Call(head.encode() + body)
        await asyncio.get_running_loop().create_connection(lambda: call, "127.0.0.1", self._port)
        self._calls.add(call)
        return call


def good(answer: Answer) -> Answer:
    """The same answer, if it is a 200 with text that came to its end.

    Raises:
        RuntimeError: it is not.
    """
    if not (answer.status == 200 and answer.complete and answer.error is None and answer.chunks):
        raise RuntimeError(f"the server's answer is no use: status {answer.status}, error {answer.error}")
    return answer
