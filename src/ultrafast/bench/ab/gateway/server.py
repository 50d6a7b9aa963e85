"""The gateway: a server on loopback that workflows take for their endpoint.

Each run of a task has an address of its own, ``http://127.0.0.1:PORT/t/TASK/ARM.NUMBER/v1``, so that whatever harness
is told that base URL needs no other change. What comes below it goes to the arm's endpoint as it came, with the arm's
tier, and back as it comes: unbuffered, byte for byte.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self
from urllib.parse import quote

import aiohttp
from aiohttp import web

from ultrafast.bench.ab.gateway import answer, body, socket
from ultrafast.bench.client.call import Call, Outcome
from ultrafast.bench.client.endpoint import Endpoint

_OF_THE_CONNECTION = {  # headers of one hop (RFC 9110, 7.6.1), and those that the gateway sets itself
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
    "upgrade", "host", "content-length", "accept-encoding",
}  # fmt: skip
_CAPACITY = (429, 503)


class Tap:
    """One run's way through the gateway, and its calls so far.

    Attributes:
        base_url: for the workflow.
        calls: in the order in which they began.
        fields: what every request asks for, whatever the workflow says.
    """

    def __init__(self, endpoint: Endpoint, base_url: str, cache_salt: str | None) -> None:
        self.endpoint = endpoint
        self.base_url = base_url
        self.calls: list[Call] = []
        fields = {"service_tier": endpoint.tier, "model": endpoint.model, "cache_salt": cache_salt}
        self.fields = {name: word for name, word in fields.items() if word is not None}
        self.handlers: set[asyncio.Task[object]] = set()

    def begin(self, path: str, now: float) -> Call:
        """A new call that the workflow makes now."""
        call = Call(
            id=str(len(self.calls) + 1),
            tags={"path": path[:100]},
            tier_asked=self.endpoint.tier,
            intended_s=now,
        )
        self.calls.append(call)
        return call

    def headers(self, received: Mapping[str, str]) -> dict[str, str]:
        """Those of a request, for the endpoint: with the arm's own key, and no compression, which could not be read."""
        kept = {name: value for name, value in received.items() if name.lower() not in _OF_THE_CONNECTION}
        kept["Accept-Encoding"] = "identity"
        if self.endpoint.api_key is not None:
            kept = {name: value for name, value in kept.items() if name.lower() not in ("authorization", "x-api-key")}
            kept["Authorization"] = f"Bearer {self.endpoint.api_key}"
        return kept | dict(self.endpoint.headers)


class Gateway:
    """Use as ``async with Gateway() as gateway``.

    Args:
        started: `time.monotonic` at the start of the run; times of calls are seconds since.
    """

    def __init__(self, started: float) -> None:
        self._started = started
        self._taps: dict[str, Tap] = {}
        self._opened = 0

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=0)  # as large as the endpoint will take
        application.router.add_route("*", "/t/{task}/{run}/{path:.*}", self._handle)
        # A client that leaves cancels its handler, and so the request to the endpoint.
        self._runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=0.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._client.close()
        await self._runner.cleanup()

    def open(self, endpoint: Endpoint, *, task: str, arm: str, cold: bool = False) -> Tap:
        """A new address, for one run of a task.

        Args:
            cold: the run shares no cache with any other: requests carry a ``cache_salt`` of its own, which only some
                servers take.
        """
        self._opened += 1
        key = f"{quote(task, safe='')}/{arm}.{self._opened}"
        salt = secrets.token_hex(8) if cold else None
        tap = Tap(endpoint, f"http://127.0.0.1:{self._port}/t/{key}/v1", salt)
        self._taps[f"{arm}.{self._opened}"] = tap
        return tap

    async def close(self, tap: Tap) -> list[Call]:
        """Ends the address, with the calls that still run there; returns all of its calls."""
        self._taps = {key: other for key, other in self._taps.items() if other is not tap}
        for handler in tap.handlers:
            handler.cancel()
        await asyncio.gather(*tap.handlers, return_exceptions=True)
        return tap.calls

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        tap = self._taps.get(request.match_info["run"])
        path = request.match_info["path"].removeprefix("v1").removeprefix("/")
        if tap is None:
            return _problem(404, "this run is over")
        handler = asyncio.current_task()
        assert handler is not None
        tap.handlers.add(handler)
        try:
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await socket.relay(self._client, request, tap, _address(tap, path, request), self._now)
            return await self._relay(request, tap, path)
        finally:
            tap.handlers.discard(handler)

    async def _relay(self, request: web.Request, tap: Tap, path: str) -> web.StreamResponse:
        arrived = self._now()
        sent = body.Sent(await request.read())
        if request.method != "POST":  # lists of models and the like ask for no tokens
            return await self._pass_on(request, tap, path, sent, None, [])
        call = tap.begin(path, arrived)
        if "json" in request.content_type:
            sent = body.for_arm(sent.raw, path, tap.fields)
        pieces: list[answer.Piece] = []
        content_type = ""
        try:
            response = await self._pass_on(request, tap, path, sent, call, pieces)
            content_type = response.content_type
            return response
        except asyncio.CancelledError:
            call.outcome, call.error = Outcome.CANCELLED, "the workflow left before the end"
            raise
        finally:
            call.done_s = self._now()
            answer.read_body(call, pieces, content_type or _type_of(pieces))
            if not call.is_ok and call.error is None:
                call.error = f"status {call.status}"

    async def _pass_on(
        self,
        request: web.Request,
        tap: Tap,
        path: str,
        sent: body.Sent,
        call: Call | None,
        pieces: list[answer.Piece],
    ) -> web.StreamResponse:
        """One request to the endpoint, its answer back; the pieces of it, and in the call what HTTP says."""
        response: web.StreamResponse | None = None
        call = call or Call("", {}, None, 0.0)  # nobody asks about this one
        call.sent_s = self._now()
        try:
            async with self._client.request(
                request.method,
                _address(tap, path, request),
                data=sent.raw or None,
                headers=tap.headers(request.headers),
                allow_redirects=False,
            ) as upstream:
                call.status = upstream.status
                if not upstream.ok:
                    call.outcome = Outcome.REFUSED if upstream.status in _CAPACITY else Outcome.ERROR
                response = web.StreamResponse(status=upstream.status, reason=upstream.reason)
                for name, value in upstream.headers.items():
                    if name.lower() not in _OF_THE_CONNECTION or (name.lower() == "content-length"):
                        response.headers.add(name, value)
                await response.prepare(request)
                usage = body.UsageFilter() if sent.adds_usage and upstream.ok else None
                async for data in upstream.content.iter_any():
                    pieces.append((self._now(), data))
                    call.first_byte_s = call.first_byte_s or pieces[0][0]
                    if shown := usage.feed(data) if usage else data:
                        await response.write(shown)
                if usage and (rest := usage.end()):
                    await response.write(rest)
            await response.write_eof()
            return response
        except (aiohttp.ClientError, ConnectionError) as error:
            call.outcome, call.error = Outcome.BROKEN, f"{type(error).__name__}: {error}"[:300]
            if response is None:
                return _problem(502, f"the endpoint does not answer: {error}")
            if request.transport is not None:  # an answer that broke off must not look whole
                request.transport.close()
            return response

    def _now(self) -> float:
        return time.monotonic() - self._started


def _address(tap: Tap, path: str, request: web.Request) -> str:
    query = f"?{request.query_string}" if request.query_string else ""
    return f"{tap.endpoint.base_url.rstrip('/')}/{path}{query}"


def _type_of(pieces: list[answer.Piece]) -> str:
    """Of a body whose answer never got through: events name themselves."""
    return "text/event-stream" if pieces and pieces[0][1].lstrip().startswith((b"data:", b"event:")) else ""


def _problem(status: int, message: str) -> web.Response:
    """In the shape of OpenAI's errors."""
    error = {"message": message, "type": "api_error", "param": None, "code": None}
    return web.json_response({"error": error}, status=status)
