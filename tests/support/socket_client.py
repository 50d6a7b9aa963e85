"""A client of WebSocket mode that says what it sends and checks what it gets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect
from websockets.uri import parse_uri

from support.response_events import TERMINAL, check_events
from support.served import Served
from ultrafast.serving.wire.socket import Sockets

LIMIT_S = 30


def frame_of(input: Any = "Hi", **fields: Any) -> str:
    """A ``response.create``."""
    return json.dumps({"type": "response.create", "model": "scripted", "store": False, "input": input, **fields})


def whole(events: list[dict[str, Any]], stream_id: str | None) -> dict[str, Any]:
    """Check the events of one response on one lane; returns the response."""
    if stream_id is None:
        assert not any("stream_id" in event for event in events)
    else:
        assert {event["stream_id"] for event in events} == {stream_id}
    return check_events(events)


class Talk:
    """One open connection."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def create(self, input: Any = "Hi", **fields: Any) -> None:
        self.connection.send(frame_of(input, **fields))

    def receive(self) -> dict[str, Any]:
        """The next event."""
        event: dict[str, Any] = json.loads(self.connection.recv(LIMIT_S))
        return event

    def events(self) -> list[dict[str, Any]]:
        """Up to the next terminal event, or error before a response."""
        events = [self.receive()]
        while events[-1]["type"] not in TERMINAL and "status" not in events[-1]:
            events.append(self.receive())
        return events

    def turn(self, input: Any = "Hi", **fields: Any) -> dict[str, Any]:
        """A whole turn; returns the response."""
        self.create(input, **fields)
        return whole(self.events(), fields.get("stream_id"))

    def error(self) -> dict[str, Any]:
        """The next event, which is an error of a request."""
        event = self.receive()
        assert event["type"] == "error"
        assert set(event["error"]) - {"headers"} == {"type", "code", "message", "param"}
        return {"status": event["status"], "stream_id": event.get("stream_id"), **event["error"]}

    def closed(self) -> int:
        """The code of the close that comes, with no event before it."""
        with pytest.raises(ConnectionClosed) as closed:
            self.connection.recv(LIMIT_S)
        assert closed.value.rcvd is not None
        return closed.value.rcvd.code


@contextmanager
def talk(port: int, path: str = "/v1/responses", *, name: str = "127.0.0.1", **options: Any) -> Iterator[Talk]:
    """Connect to a server here, by any name; ``options`` of `websockets.sync.client.connect`."""
    options = {"compression": None, "sock": socket.create_connection(("127.0.0.1", port)), **options}
    with connect(f"ws://{name}:{port}{path}", max_size=None, **options) as connection:
        yield Talk(connection)


class RawSocket:
    """A connection after its upgrade, as bytes: for clients that stall, vanish, or break the protocol."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(LIMIT_S)
        self.socket.connect(("127.0.0.1", port))
        self.protocol = ClientProtocol(parse_uri(f"ws://127.0.0.1:{port}/v1/responses"), max_size=None)
        self.protocol.send_request(self.protocol.connect())
        self.flush()
        while not self.protocol.events_received():
            self.protocol.receive_data(self.socket.recv(4096))

    def flush(self) -> None:
        for data in self.protocol.data_to_send():
            self.socket.sendall(data)

    def send(self, text: str) -> None:
        self.protocol.send_text(text.encode())
        self.flush()

    def send_in_pieces(self, text: bytes, cuts: list[int]) -> None:
        """One message in fragments that end at those places, with a ping between any two."""
        edges = [0, *cuts, len(text)]
        for index, (start, end) in enumerate(pairwise(edges)):
            send = self.protocol.send_continuation if index else self.protocol.send_text
            send(text[start:end], fin=end == edges[-1] and index == len(cuts))
            self.protocol.send_ping(b"here")
        self.flush()

    def frames(self) -> Iterator[Frame]:
        """What comes, until the end of the connection."""
        while data := self.socket.recv(1 << 16):
            self.protocol.receive_data(data)
            for frame in self.protocol.events_received():
                assert isinstance(frame, Frame)
                if frame.opcode is not Opcode.PONG:
                    yield frame

    def vanish(self) -> None:
        """Leave without a word, as a process that is killed does."""
        self.socket.close()

    def __enter__(self) -> RawSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def connections(server: Served) -> set[Any]:
    """The open ones, as the server sees them."""
    sockets: Sockets = server.server.config.app.state.sockets  # type: ignore[union-attr]
    return sockets.open


def leave_no_trace(server: Served) -> None:
    """Whatever came before: nothing runs, no connection is left, and the next client is served."""
    server.wait_for(lambda stats: stats["running"] + stats["waiting"] == 0)
    server.wait_for(lambda _: not connections(server), limit_s=30)
    with talk(server.port) as client:
        assert client.turn()["status"] == "completed"
