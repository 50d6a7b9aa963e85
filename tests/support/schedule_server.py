"""The reference endpoint: sends known schedules of events, and tells what it did and when.

A program of its own, so that client and server do not share an interpreter. What a request gets, in this order: its
field ``schedule`` (`Schedule.asked`), one drawn by its ``seed``, the one that the program was started with.

``GET /truth`` tells of the requests so far; ``POST /stall`` with ``{"after_s": …, "for_s": …}`` has nothing sent to
anybody within that time, and what was due is sent at its end.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from support.schedule_wire import ChatWire, Event, ResponseWire, Wire
from support.schedules import Schedule, Step, Truth, drawn

_encode = msgspec.json.Encoder().encode
_PATHS = {"/v1/chat/completions": "chat", "/v1/completions": "completions", "/v1/responses": "responses"}
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Book:
    """What the connections share: the default schedule, the stall, and what was done."""

    def __init__(self, default: Schedule) -> None:
        self.default = default
        self.truths: list[Truth] = []
        self.stall = (0.0, 0.0)
        self.ids = itertools.count(1)

    def schedule(self, body: dict[str, Any]) -> Schedule:
        if "schedule" in body:
            return msgspec.convert(body["schedule"], Schedule)
        return drawn(body["seed"]) if body.get("seed") is not None else self.default

    def delay(self, due: float) -> float:
        """Seconds to wait for something due at a time."""
        begin, end = self.stall
        return (end if begin <= max(due, time.monotonic()) < end else due) - time.monotonic()


class Connection(asyncio.Protocol):
    """One connection: requests over HTTP one after another, or a WebSocket."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._buffer = bytearray()
        self._answering: asyncio.Task[None] | None = None
        self._frames: ServerProtocol | None = None
        self._truth: Truth | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport  # uvloop's is no asyncio.Transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._answering is not None and not self._answering.done():
            self._answering.cancel()
            if self._truth is not None and self._truth.ended_s is None:
                self._truth.left, self._truth.ended_s = True, time.monotonic()

    def data_received(self, data: bytes) -> None:
        if self._frames is not None:
            self._frames.receive_data(data)
            return self._socket_events()
        self._buffer += data
        head, found, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        if not found:
            return None
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if b"upgrade" in fields:
            self._frames = ServerProtocol(max_size=None)
            self._frames.receive_data(bytes(self._buffer))
            return self._socket_events()
        length = int(fields.get(b"content-length", 0))
        if len(rest) >= length:
            self._buffer = bytearray(rest[length:])
            _, path, _ = head.split(b" ", 2)
            self._request(path.decode(), rest[:length])
        return None

    def _socket_events(self) -> None:
        assert self._frames is not None
        for event in self._frames.events_received():
            if isinstance(event, Request):
                self._frames.send_response(self._frames.accept(event))
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._begin("socket", msgspec.json.decode(event.data))
        self._flush()

    def _flush(self) -> None:
        assert self._frames is not None
        for data in self._frames.data_to_send():
            self._transport.write(data) if data else self._transport.close()

    def _request(self, path: str, content: bytes) -> None:
        if path in _PATHS:
            return self._begin(_PATHS[path], msgspec.json.decode(content))
        match path:
            case "/truth":
                return self._whole(200, [vars(truth) for truth in self._book.truths])
            case "/stall":
                asked = msgspec.json.decode(content)
                begin = time.monotonic() + asked["after_s"]
                self._book.stall = (begin, begin + asked["for_s"])
                return self._whole(200, {"begin_s": begin})
            case "/v1/models":
                return self._whole(200, {"object": "list", "data": [{"id": "reference", "object": "model"}]})
        return self._whole(404, {"error": {"message": f"nothing at {path}"}})

    def _whole(self, status: int, answer: Any) -> None:
        body = _encode(answer)
        head = f"HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)

    def _begin(self, api: str, body: dict[str, Any]) -> None:
        schedule = self._book.schedule(body)
        self._truth = Truth(api, None, time.monotonic(), body)
        self._book.truths.append(self._truth)
        if schedule.strict and (body.get("stream_options") or {}).get("continuous_usage_stats"):
            return self._refuse(400, "Unknown parameter: 'stream_options.continuous_usage_stats'.")
        if schedule.refuse is not None:
            return self._refuse(schedule.refuse, f"the reference endpoint refuses with {schedule.refuse}")
        self._truth.id = f"answer-{next(self._book.ids)}"
        wire: Wire
        if api in ("chat", "completions"):
            wire = ChatWire(self._truth.id, body, schedule, is_raw=api == "completions")
        else:
            wire = ResponseWire(self._truth.id, body, schedule)
        self._answering = asyncio.get_running_loop().create_task(self._answer(wire, schedule, self._truth))
        return None

    def _refuse(self, status: int, message: str) -> None:
        assert self._truth is not None
        self._truth.ended_s = time.monotonic()
        error = {"message": message, "type": "reference_error"}
        if self._frames is not None:
            return self._send([{"type": "error", "status": status, "error": error}])
        return self._whole(status, {"error": error})

    async def _answer(self, wire: Wire, schedule: Schedule, truth: Truth) -> None:
        if schedule.drop_after != 0:
            if self._frames is None:
                self._transport.write(_HEAD)
            self._send(wire.opening())
        due = truth.received_s
        for index, step in enumerate(schedule.steps):
            if index in (schedule.drop_after, schedule.error_after, schedule.stop_after):
                break
            due = await self._wait(due, step.delay_s)
            due = await self._step(wire.step(step), step, due, truth)
        due = await self._wait(due, schedule.end_s)
        truth.ended_s = time.monotonic()
        if schedule.drop_after is not None:
            self._transport.abort()
        elif schedule.error_after is not None:
            self._send([wire.error()], is_last=True)
        elif schedule.stop_after is not None:
            self._end_early()
        else:
            self._send(wire.ending(), is_last=True, is_done=isinstance(wire, ChatWire))

    async def _wait(self, due: float, delay_s: float) -> float:
        """Wait from one due time for the next; returns when it was."""
        if delay_s or self._book.delay(due) > 0:
            await asyncio.sleep(max(0.0, self._book.delay(due + delay_s)))
            if (more := self._book.delay(due + delay_s)) > 0:  # a stall began meanwhile
                await asyncio.sleep(more)
        return time.monotonic()

    async def _step(self, event: Event, step: Step, due: float, truth: Truth) -> float:
        data = self._framed([event])
        if step.cut_s:
            self._transport.write(data[: len(data) // 2])
            due = await self._wait(due, step.cut_s)
            data = data[len(data) // 2 :]
        truth.written_s.append(time.monotonic())
        truth.tokens.append(step.tokens)
        self._transport.write(data)
        return due

    def _framed(self, events: list[Event], *, tail: bytes = b"") -> bytes:
        if self._frames is not None:
            for event in events:
                self._frames.send_text(_encode(event))
            return b"".join(self._frames.data_to_send())
        data = b"".join(b"data: %b\n\n" % _encode(event) for event in events) + tail
        return b"%x\r\n%b\r\n" % (len(data), data) if data else b""

    def _send(self, events: list[Event], *, is_last: bool = False, is_done: bool = False) -> None:
        data = self._framed(events, tail=b"data: [DONE]\n\n" if is_done else b"")
        self._transport.write(data + (b"0\r\n\r\n" if is_last and self._frames is None else b""))

    def _end_early(self) -> None:
        if self._frames is None:
            return self._transport.write(b"0\r\n\r\n")
        self._frames.send_close(1000)
        return self._flush()


async def _serve(default: Schedule) -> None:
    book = Book(default)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(book), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until whoever started it leaves


def main() -> None:
    """Args on the command line: the default schedule as JSON."""
    import uvloop

    default = msgspec.json.decode(sys.argv[1], type=Schedule) if len(sys.argv) > 1 else drawn(0)
    uvloop.run(_serve(default))


@dataclass
class ReferenceEndpoint:
    """A running one."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def truths(self) -> list[Truth]:
        """What it did, in the order of the requests."""
        return [Truth(**truth) for truth in self._ask("/truth")]

    def truth_of(self, id: str | None) -> Truth:
        """What it did for one answer."""
        (truth,) = [truth for truth in self.truths() if truth.id == id]
        return truth

    def stall(self, *, after_s: float, for_s: float) -> float:
        """Have nothing sent for a while; returns when that begins, on `time.monotonic`."""
        begin: float = self._ask("/stall", {"after_s": after_s, "for_s": for_s})["begin_s"]
        return begin

    def _ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else _encode(body)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", data, timeout=30) as answer:
            return msgspec.json.decode(answer.read())


@contextmanager
def reference_endpoint(default: Schedule | None = None) -> Iterator[ReferenceEndpoint]:
    """Run one until the end of the block.

    Args:
        default: for requests that ask for no schedule.
    """
    arguments = [] if default is None else [_encode(default).decode()]
    process = subprocess.Popen(
        [sys.executable, __file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            yield ReferenceEndpoint(int(process.stdout.readline()))
        finally:
            process.stdin.close()
            process.wait(timeout=10)


if __name__ == "__main__":
    main()
