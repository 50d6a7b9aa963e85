"""Server-sent events: frames, and the response that sends them while watching for the client's leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ultrafast.engine.stream import StreamCancelled, TokenStream
from ultrafast.errors import RequestError
from ultrafast.serving.errors import error_response, internal_error

FLUSH_S = 0.008  # shortest time between two writes of one stream, after its first token

DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.Encoder().encode  # one line: JSON escapes line breaks in strings
_log = logging.getLogger(__name__)


def frame(data: Any, event: str | None = None) -> bytes:
    """One event; ``event`` is its name line, which Chat Completions leaves out."""
    if event is None:
        return b"data: %b\n\n" % _encode(data)
    return b"event: %b\ndata: %b\n\n" % (event.encode(), _encode(data))


@asynccontextmanager
async def cancelled_with_client(receive: Receive, streams: Sequence[TokenStream]) -> AsyncIterator[None]:
    """Within it, a client that hangs up cancels the streams at once; on leaving, so does any other reason.

    The request's body must have been read: the next thing ``receive`` tells is the disconnect.
    """

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        for stream in streams:
            stream.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        for stream in streams:
            stream.cancel()  # nothing for those that have ended


class Answering(Protocol):
    """What is answered: `generate.Running`, or something of the kind."""

    @property
    def streams(self) -> Sequence[TokenStream]:
        """Those that are cancelled when the client leaves."""
        ...

    @property
    def headers(self) -> dict[str, str]:
        """Of the answer."""
        ...

    async def admitted(self) -> None:
        """Wait until the answer may begin."""
        ...


class EventStream(Response):
    """A 200 whose body is frames, or an error answer: it begins when all its requests have their slots.

    Args:
        frames: chunks of whole frames, each sent in one write; a slow client holds this iterator back.
        running: what they tell of.
        on_error: the frames that tell of an error in the format at hand.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        *,
        running: Answering,
        on_error: Callable[[RequestError], bytes],
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no", **running.headers})
        del self.headers["content-length"]
        self._frames = frames
        self._running = running
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with cancelled_with_client(receive, self._running.streams):
            refusal = await self._refusal(scope)
            if refusal is None:
                await self._send_frames(scope, send)
            else:
                await refusal(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        """Wait for the slots; the answer in place of the frames, if they do not come."""
        try:
            await self._running.admitted()
        except StreamCancelled:
            return Response(status_code=499)  # nobody reads it
        except RequestError as error:
            return error_response(error, scope)
        return None

    async def _send_frames(self, scope: Scope, send: Send) -> None:
        async def write(chunk: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": chunk, "more_body": more})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async with aclosing(self._frames) as frames:  # type: ignore[type-var]
                async for chunk in frames:
                    await write(chunk)
        except StreamCancelled:
            return
        except RequestError as error:
            await write(self._on_error(error))
        except Exception:
            request_id = scope["state"]["request_id"]
            _log.exception("request %s failed while streaming", request_id)
            await write(self._on_error(internal_error(request_id)))
        await write(b"", more=False)
