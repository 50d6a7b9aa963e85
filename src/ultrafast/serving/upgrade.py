"""uvicorn's WebSocket protocol, and what it leaves to time: a client that does not read is dropped.

Closing a transport waits until everything written has been read, which a client that vanished or stalls never does. So
wherever uvicorn closes on such a client, this aborts.
"""

from __future__ import annotations

import asyncio

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MAX_FRAME = 64 * 1024 * 1024  # bytes of one message; beyond it the connection is closed with 1009
PING_S = 20.0  # between two pings
PONG_S = 40.0  # how long the answer to one may take
SLOW_READER_S = 30.0  # how long a client may leave us with a full send buffer

_REFUSAL = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket connection."""

    async def send(self, message: ASGISendEvent) -> None:
        """Send, waiting for the client to make room in the send buffer for `SLOW_READER_S` at most.

        Raises:
            ClientDisconnected: the client has left, is leaving, or was dropped for not reading.
        """
        if not self.writable.is_set():
            try:
                async with asyncio.timeout(SLOW_READER_S):
                    await self.writable.wait()
            except TimeoutError:
                self.transport.abort()
        if self.close_sent or self.transport.is_closing():
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body":  # the upgrade is refused; uvicorn would log it as a fault
            self.handshake_complete = True

    def data_received(self, data: bytes) -> None:
        """Take what has arrived; an upgrade that cannot even be refused in detail is refused without."""
        try:
            super().data_received(data)
        except Exception:
            if self.handshake_initiated:
                raise
        if not self.handshake_initiated and not self.transport.is_closing():
            self.transport.write(_REFUSAL)
            self.transport.close()

    def handle_parser_exception(self) -> None:
        """Tell why the connection ends, and read on until the client ends it too.

        With something unread, closing would reset the connection, and the reason might never arrive.
        """
        if self.close_sent:
            return
        self.stop_keepalive()
        close = self.conn.close_sent
        assert close is not None
        self.queue.put_nowait({"type": "websocket.disconnect", "code": close.code, "reason": close.reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.write_eof()
        self.close_sent = True
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.abort)
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def keepalive_timeout(self) -> None:
        """No answer to a ping."""
        super().keepalive_timeout()
        self.transport.abort()

    async def run_asgi(self) -> None:
        """Run the application, then see to it that the connection ends."""
        await super().run_asgi()
        if not self.disconnected:
            self.loop.call_later(self.close_timeout, self.transport.abort)
