"""Responses over one WebSocket, one after another."""

from __future__ import annotations

import asyncio

import aiohttp

from ultrafast.bench.client.answer import bounded
from ultrafast.bench.client.recording import MAX_BODY, Recording
from ultrafast.bench.client.response_events import end_of

_CLOSE_S = 0.2  # for the server to say goodbye as well


class SocketClosed(Exception):
    """The server ended the connection before the response had ended."""


class Socket:
    """One connection: opened when it is first needed, and anew when it was lost or a response did not end on it."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        self._session = session
        self._url = f"ws{base_url.rstrip('/').removeprefix('http')}/responses"
        self._turn = asyncio.Lock()
        self._connection: aiohttp.ClientWebSocketResponse | None = None

    async def ask(self, event: bytes, recording: Recording) -> None:
        """Send a ``response.create`` when it is its turn, and record the events up to its end.

        Raises what aiohttp raises, `TooLong` and `SocketClosed`.
        """
        async with self._turn:
            is_clean = False
            try:
                is_clean = await self._ask(event, recording)
            finally:
                if not is_clean:  # what is left of this response would pass for the next one
                    await self.close()

    async def _ask(self, event: bytes, recording: Recording) -> bool:
        connection = await self._open()
        recording.sending()
        await connection.send_str(event.decode())
        recording.status = 200
        while True:
            message = await connection.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                raise SocketClosed(_why(message, connection))
            data = message.data.encode()
            recording.add(data)
            if end := end_of(data):
                return end == "clean"

    async def _open(self) -> aiohttp.ClientWebSocketResponse:
        if self._connection is not None and not await _is_silent(self._connection):
            await self.close()
        if self._connection is None:
            self._connection = await self._session.ws_connect(self._url, max_msg_size=MAX_BODY, compress=0)
        return self._connection

    async def close(self) -> None:
        """Leave, with hardly a wait."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await connection.close()
            except TimeoutError:
                pass  # aiohttp has dropped the connection


async def _is_silent(connection: aiohttp.ClientWebSocketResponse) -> bool:
    """Whether nothing came since the last response: a close would, and then nothing sent is answered."""
    try:
        await connection.receive(timeout=1e-6)
    except TimeoutError:
        return True
    return False


def _why(message: aiohttp.WSMessage, connection: aiohttp.ClientWebSocketResponse) -> str:
    if message.type is aiohttp.WSMsgType.BINARY:
        return "the server sent a binary frame, and events are text"
    code = connection.close_code
    reason = f": {bounded(message.extra)}" if isinstance(message.extra, str) and message.extra else ""
    problem = message.data if message.type is aiohttp.WSMsgType.ERROR else f"code {code}"
    return f"the server closed the WebSocket before the response had ended ({problem}){reason}"
