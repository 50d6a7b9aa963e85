"""What a request gave, as bytes with the times they were read: all that is done while answers come."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import aiohttp

from ultrafast.bench.client.call import Outcome
from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.sse import Read

MAX_BODY = 64 << 20  # bytes of one answer; more is no answer to what is asked here

TIMES = aiohttp.ClientTimeout(total=None)  # the client has a limit of its own, from the intended start


class TooLong(Exception):
    """An answer has more than `MAX_BODY` bytes."""


@dataclass(slots=True)
class Recording:
    """One request, unread.

    Attributes:
        fault: what ended it other than the server's own end.
        ended_s: when it ended, well or not.
    """

    clock: RunClock
    sent_s: float | None = None
    status: int | None = None
    content_type: str = ""
    location: str | None = None
    reads: list[Read] = field(default_factory=list)
    size: int = 0
    fault: tuple[Outcome, str] | None = None
    ended_s: float | None = None

    def sending(self) -> None:
        """Its first byte is given to a connection now."""
        self.sent_s = self.clock.now()

    def add(self, data: bytes) -> None:
        """Bytes that were read just now.

        Raises:
            TooLong: they are too many.
        """
        self.reads.append((self.clock.now(), data))
        self.size += len(data)
        if self.size > MAX_BODY:
            raise TooLong

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.reads)


async def post(session: aiohttp.ClientSession, url: str, body: bytes, recording: Recording) -> None:
    """Send a request and record its answer. Raises what aiohttp raises, and `TooLong`."""
    async with session.post(
        url, data=body, allow_redirects=False, timeout=TIMES, trace_request_ctx=recording
    ) as response:
        recording.status = response.status
        recording.content_type = response.headers.get("content-type", "")
        recording.location = response.headers.get("location")
        try:
            while data := await response.content.readany():
                recording.add(data)
        except BaseException:
            response.close()  # or its end would be awaited, to use the connection again
            raise


def sending_trace() -> aiohttp.TraceConfig:
    """Tells a recording when its request is given to a connection."""

    async def sending(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
        if context.trace_request_ctx is not None:  # it is for the upgrade to a WebSocket
            context.trace_request_ctx.sending()

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(sending)
    return trace
