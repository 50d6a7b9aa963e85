"""The client: one request to an endpoint and the record of what came of it, with nothing but reading while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from ultrafast import __version__
from ultrafast.bench.client.bodies import PATHS, Dialect, body_of
from ultrafast.bench.client.call import Ask, Call, Outcome
from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.endpoint import Endpoint
from ultrafast.bench.client.faults import problem_of
from ultrafast.bench.client.reading import fill, outcome_of
from ultrafast.bench.client.recording import MAX_BODY, Recording, TooLong, post, sending_trace
from ultrafast.bench.client.socket import Socket, SocketClosed
from ultrafast.bench.client.tokens import Count

_BAD_REQUEST = (400, 422)
# Servers drop idle connections (uvicorn and Node after 5 s), and a request on its way just then is lost: leave first.
_KEEPALIVE_S = 4.0
_AT_ONE_GO = 50  # events of an answer that has ended: half a millisecond


class Client:
    """Asks one endpoint; an async context manager, within which any number of tasks may `call`.

    Args:
        endpoint: where to.
        clock: of the run; every time in a `Call` is on it.
        timeout_s: the limit of a call, from its intended start.
        connections: the most that are open at once; further calls wait, and are late. 0: no limit. A WebSocket is one
            connection, and carries one call after another.
        count: a tokenizer to recount answers with; ``None``: counts are the server's.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clock: RunClock,
        *,
        timeout_s: float = 600.0,
        connections: int = 0,
        count: Count | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._timeout_s = timeout_s
        self._connections = connections
        self._count = count
        self._dialect = Dialect()
        self._in_flight: dict[asyncio.Timeout, Recording] = {}
        self._session: aiohttp.ClientSession | None = None
        self._socket: Socket | None = None

    async def __aenter__(self) -> Self:
        headers = headers_of(self._endpoint.api_key) | dict(self._endpoint.headers)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=_KEEPALIVE_S),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[sending_trace()],
        )
        self._socket = Socket(self._session, self._endpoint.base_url)
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._session
        assert self._socket
        await self._socket.close()
        await self._session.close()

    async def call(self, ask: Ask, *, id: str, intended_s: float | None = None) -> Call:
        """Ask, and wait for the end of the answer.

        Whatever the server or the network does, the `Call` says it. A task that is cancelled meanwhile closes the
        connection and leaves no record; `stop` leaves one.

        Args:
            ask: what to ask.
            id: of the record.
            intended_s: when this was meant to be sent, on the run's clock; ``None``: now.

        Raises:
            ConfigError: the API has no way to ask this.
        """
        if intended_s is None:
            intended_s = self._clock.now()
        dialect = self._dialect
        recording = await self._recorded(ask, dialect, intended_s)
        while recording.status in _BAD_REQUEST and recording.fault is None:
            refusal = recording.body.decode(errors="replace")
            simpler = dialect.without(refusal)
            if simpler is None:
                break
            dialect = self._dialect = simpler
            recording = await self._recorded(ask, dialect, intended_s)
        call = Call(id, ask.tags, self._endpoint.tier, intended_s)
        for events, _ in enumerate(fill(call, recording, self._endpoint.api, self._count)):
            if events % _AT_ONE_GO == _AT_ONE_GO - 1:
                await asyncio.sleep(0)
        return call

    def stop(self) -> None:
        """End the calls in flight: they return at once, as cancelled."""
        for limit, recording in self._in_flight.items():
            if recording.fault is None and not limit.expired():
                recording.fault = Outcome.CANCELLED, "stopped by this client"
                limit.reschedule(0)

    async def _recorded(self, ask: Ask, dialect: Dialect, intended_s: float) -> Recording:
        assert self._session
        assert self._socket
        recording = Recording(self._clock)
        body = msgspec.json.encode(body_of(ask, self._endpoint, dialect))
        if self._endpoint.api == "socket":
            work = self._socket.ask(body, recording)
        else:
            work = post(self._session, self._endpoint.base_url.rstrip("/") + PATHS[self._endpoint.api], body, recording)
        await self._guarded(work, recording, intended_s)
        recording.ended_s = self._clock.now()
        return recording

    async def _guarded(self, work: Awaitable[None], recording: Recording, intended_s: float) -> None:
        """Do it within the limit; what goes wrong becomes the fault of the recording."""
        limit = asyncio.timeout(max(0.0, self._timeout_s - (self._clock.now() - intended_s)))
        try:
            async with limit:
                self._in_flight[limit] = recording
                await work
        except TooLong:
            recording.fault = Outcome.BROKEN, f"the answer is longer than {MAX_BODY >> 20} MiB"
            del recording.reads[1:]  # to read it all would take seconds, for nothing
        except aiohttp.WSServerHandshakeError as error:
            recording.status = error.status
            recording.fault = outcome_of(error.status), problem_of(error)
        except (aiohttp.ClientError, SocketClosed, OSError, ValueError) as error:
            if recording.fault is None and limit.expired():
                recording.fault = Outcome.TIMEOUT, f"no end within {self._timeout_s:g} s"
            elif recording.fault is None:
                recording.fault = Outcome.BROKEN, problem_of(error)
        finally:
            self._in_flight.pop(limit, None)


def headers_of(api_key: str | None) -> dict[str, str]:
    """Headers of every request. Compressed events would come in lumps."""
    headers = {
        "user-agent": f"ultrafast/{__version__}",
        "content-type": "application/json",
        "accept-encoding": "identity",
    }
    return headers | ({"authorization": f"Bearer {api_key}"} if api_key else {})
