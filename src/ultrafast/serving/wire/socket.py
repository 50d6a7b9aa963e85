"""WebSocket mode of ``/v1/responses``: one connection for many turns, which remembers what they continue from.

A connection has one task that reads, one that ends it in time, and one for each lane at work. When any of them ends the
connection, or the client leaves, all are cancelled, and with them what the engine does for them.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from ultrafast.errors import RequestError
from ultrafast.serving.ahead import compute_shared_start
from ultrafast.serving.errors import internal_error
from ultrafast.serving.wire.body import decode
from ultrafast.serving.wire.response_run import ResponseRun, Turn
from ultrafast.serving.wire.responses import begin_response, previous_not_found, stored_turn
from ultrafast.serving.wire.responses_request import DECODER, ResponsesRequest
from ultrafast.serving.wire.socket_frames import Frame, error_event, event_text, read_frame, steer_failed, unknown_type
from ultrafast.serving.wire.socket_lanes import Lane, Lanes, Meanwhile, Memory

LIFETIME_S = 3600.0  # of a connection
MAX_CONNECTIONS = 1024
AHEAD_AFTER_S = 0.005  # a client that has its next turn ready is not slowed down by guesses about it

_GOING_AWAY = 1001  # close codes of RFC 6455 and its registry: clients connect again after each of these
_SERVICE_RESTART = 1012
_TRY_AGAIN_LATER = 1013

_log = logging.getLogger(__name__)


async def respond_over_websocket(websocket: WebSocket) -> None:
    """The endpoint."""
    await websocket.app.state.sockets.serve(websocket)


class Sockets:
    """The open connections of an application.

    Attributes:
        open: those there are.
    """

    def __init__(self) -> None:
        self.open: set[Connection] = set()
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()

    async def serve(self, websocket: WebSocket) -> None:
        """Serve a connection until its end.

        Raises:
            RequestError: 503, the server is shutting down; the upgrade is to be refused.
        """
        if self._draining:
            raise RequestError(
                "The server is shutting down and takes no new connections.",
                status=503,
                type="service_unavailable_error",
                code="server_is_overloaded",
                retry_after=5.0,
            )
        await websocket.accept()
        if len(self.open) >= MAX_CONNECTIONS:
            await websocket.close(_TRY_AGAIN_LATER, "too many connections")
            return
        connection = Connection(websocket)
        self.open.add(connection)
        self._empty.clear()
        try:
            await connection.serve()
        finally:
            self.open.remove(connection)
            if not self.open:
                self._empty.set()

    async def drain(self) -> None:
        """Take no connections from now on, close each as soon as nothing runs or waits on it, and return then."""
        self._draining = True
        for connection in self.open:
            connection.retire()
        await self._empty.wait()


class _Closed(Exception):  # not a fault: ends the tasks of a connection
    """We have closed the connection."""


class Connection:
    """One connection."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._memory = Memory()
        self._retiring = asyncio.Event()
        self._expired = False
        self._num_requests = 0

    def retire(self) -> None:
        """Close it once nothing runs or waits on it."""
        self._retiring.set()

    def expire(self) -> None:
        """It has lasted long enough: finish what runs, refuse the rest, then close it."""
        self._expired = True
        self.retire()

    async def serve(self) -> None:
        """Answer until the client leaves or the connection is closed."""
        lifetime = asyncio.get_running_loop().call_later(LIFETIME_S, self.expire)
        try:
            async with asyncio.TaskGroup() as tasks:
                lanes = Lanes(tasks, self._answer)
                tasks.create_task(self._close_in_time(lanes))
                while True:
                    await self._take(await self._websocket.receive(), lanes)
        except* (WebSocketDisconnect, _Closed):
            pass
        finally:
            lifetime.cancel()

    async def _close_in_time(self, lanes: Lanes) -> None:
        await self._retiring.wait()
        await lanes.idle.wait()
        if self._expired:
            await self._send(error_event(_expired()), None)
            await self._websocket.close(_GOING_AWAY, "connection limit reached")
        else:
            await self._websocket.close(_SERVICE_RESTART, "server is shutting down")
        raise _Closed

    async def _take(self, message: Any, lanes: Lanes) -> None:
        """Queue what the client sent, or say what is wrong with it."""
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"])
        stream_id = None
        try:
            frame = read_frame(message)
            stream_id = frame.stream_id
            if frame.type == "response.create":
                lanes.take(frame)
            elif frame.type == "response.steer":
                await self._send(steer_failed(frame), lanes.lane_of(frame.continues))
            else:
                raise unknown_type(frame.type)
        except RequestError as error:
            await self._send(error_event(error), stream_id)

    async def _answer(self, lane: Lane, frame: Frame) -> Meanwhile | None:
        """Answer one ``response.create``, whatever comes of it."""
        self._num_requests += 1
        request_id = f"{self._websocket.state.request_id}-{self._num_requests}"
        try:
            if self._expired:
                raise _expired()
            ask = decode(DECODER, frame.body)
            making = await begin_response(
                self._websocket,
                ask,
                request_id=request_id,
                body_size=len(frame.body),
                whole=False,
                previous=await self._previous(ask),
            )
            if await self._send_response(lane, making, request_id):
                return partial(self._look_ahead, making, request_id)
        except RequestError as error:
            await self._send(error_event(error), lane.stream_id)
        except WebSocketDisconnect:
            raise
        except Exception:
            _log.exception("request %s failed", request_id)
            await self._send(error_event(internal_error(request_id)), lane.stream_id)
        self._memory.forget(lane, frame.continues)  # whoever continues from it again shall send everything
        return None

    async def _send_response(self, lane: Lane, making: ResponseRun, request_id: str) -> bool:
        """Send the events of a response as they come; returns whether it went well.

        Raises:
            RequestError: it could not begin.
        """
        try:
            await making.admitted()
            lane.in_progress = making.id
            try:
                async with aclosing(making.events()) as batches:  # type: ignore[type-var]
                    async for events in batches:
                        if making.turn is not None:  # to be found by whoever has seen the terminal event
                            self._memory.keep(lane, making.turn)
                        await self._send_all(events, lane)
            except WebSocketDisconnect:
                raise
            except Exception:
                _log.exception("request %s failed while streaming", request_id)
                await self._send_all(making.failed(internal_error(request_id)), lane)
            return making.turn is not None
        finally:
            lane.in_progress = None
            for stream in making.streams:
                stream.cancel()  # nothing for those that have ended

    async def _look_ahead(self, making: ResponseRun, request_id: str) -> None:
        """Have what the next turn of a lane is sure to begin with computed; cancelled when it comes."""
        await asyncio.sleep(AHEAD_AFTER_S)
        try:
            stream = await compute_shared_start(
                self._websocket, making.loop, making.continuations(), request_id=f"{request_id}-ahead"
            )
            if stream is not None:
                try:
                    await stream.result()
                finally:
                    stream.cancel()
        except RequestError:
            pass  # the next turn does without, and tells what is wrong with it
        except Exception:
            _log.exception("looking ahead of request %s failed", request_id)

    async def _previous(self, ask: ResponsesRequest) -> Turn | None:
        """What a request continues from: the latest turn of some lane, or one that is stored.

        Raises:
            RequestError: 400 ``previous_response_not_found``.
        """
        if ask.previous_response_id is None:
            return None
        turn = self._memory.find(ask.previous_response_id)
        if turn is None and ask.store is False:
            raise previous_not_found(ask.previous_response_id)
        return turn or await stored_turn(self._websocket, ask.previous_response_id)

    async def _send_all(self, events: list[dict[str, Any]], lane: Lane) -> None:
        for event in events:
            await self._send(event, lane.stream_id)

    async def _send(self, event: dict[str, Any], stream_id: str | None) -> None:
        if self._websocket.application_state is WebSocketState.DISCONNECTED:  # by a close of ours that is under way
            raise WebSocketDisconnect
        await self._websocket.send({"type": "websocket.send", "text": event_text(event, stream_id)})


def _expired() -> RequestError:
    return RequestError(
        f"This connection has lasted {LIFETIME_S / 60:.0f} minutes, which is the limit; open another one.",
        code="websocket_connection_limit_reached",
    )
