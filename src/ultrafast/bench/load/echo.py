"""A server that answers at once, in events that carry the time at which they were written: what is read late was read
late by the client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ultrafast.bench.client.call import Call
from ultrafast.bench.client.clock import RunClock

_WIDTH = 20  # characters of a stamp
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENT = 'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n'
_LAST = (
    'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":%d,"total_tokens":%d}}\n\n'
    "data: [DONE]\n\n"
)


class EchoServer:
    """Chat Completions on a free port of this machine, from a thread of this process, while its block runs.

    Args:
        events, interval_s: of each answer.
    """

    def __init__(self, clock: RunClock, *, events: int, interval_s: float) -> None:
        self._clock = clock
        self._events = events
        self._interval_s = interval_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await _read_request(reader)
                writer.write(_HEAD)
                for _ in range(self._events):
                    await asyncio.sleep(self._interval_s)
                    writer.write(_chunk(_EVENT % f"{self._clock.now():{_WIDTH}.9f}"))
                writer.write(_chunk(_LAST % (self._events, self._events + 1)) + b"0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has left, or we do: nobody waits for this task
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            await reader.readexactly(int(line.partition(b":")[2]))


def _chunk(text: str) -> bytes:
    raw = text.encode()
    return b"%x\r\n%s\r\n" % (len(raw), raw)


def delays_s(calls: Sequence[Call]) -> list[float]:
    """From writing to reading, for each event of such calls."""
    found = []
    for call in calls:
        stamps = [call.text[start : start + _WIDTH] for start in range(0, len(call.text), _WIDTH)]
        found += [chunk.at_s - float(stamp) for chunk, stamp in zip(call.chunks, stamps, strict=False)]
    return found
