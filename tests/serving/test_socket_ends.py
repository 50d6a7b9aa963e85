"""How connections end: clients that leave, stall or fall silent; failures of ours; shutdown."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from support.scripted_engine import ScriptedEngine
from support.served import served
from support.socket_client import RawSocket, connections, frame_of, talk, whole
from ultrafast.serving import upgrade

MEBI = 1 << 20


def num_open(stats: dict[str, int]) -> int:
    return stats["running"] + stats["waiting"]


@pytest.mark.parametrize("leave", ["close", "reset", "goodbye"])
@pytest.mark.parametrize("phase", ["waiting", "prefill", "streaming"])
def test_a_client_that_leaves_frees_everything(leave: str, phase: str) -> None:
    engine = ScriptedEngine(num_slots=0 if phase == "waiting" else 4, paced=True)
    with served(engine) as server:
        with RawSocket(server.port) as client:
            for index in range(3):
                client.send(frame_of(stream_id=f"lane-{index}"))
                client.send(frame_of(stream_id=f"lane-{index}"))
            server.wait_for(lambda stats: num_open(stats) == 3)
            if phase == "streaming":
                engine.allow(5)
                texts = (frame for frame in client.frames() if b"output_text.delta" in frame.data)
                next(texts)
            if leave == "reset":
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if leave == "goodbye":
                client.protocol.send_close(1000)
                client.flush()
                list(client.frames())
        server.wait_for(lambda stats: num_open(stats) == 0)
        server.wait_for(lambda _: not connections(server))
        assert len(engine.requests) <= 3


def test_a_client_that_does_not_read_is_dropped_and_nobody_else_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "SLOW_READER_S", 0.2)
    engine = ScriptedEngine("Fine.", paced=True)
    with served(engine) as server, talk(server.port) as other, RawSocket(server.port) as stalled:
        stalled.send(frame_of(stream_id="quiet"))  # runs on, and is cancelled with the connection
        server.wait_for(lambda stats: num_open(stats) == 1)
        other.create("A")
        server.wait_for(lambda stats: num_open(stats) == 2)
        stalled.send(frame_of(user="x" * 16 * MEBI))  # told again in every event about the whole response
        server.wait_for(lambda _: len(connections(server)) == 1)
        server.wait_for(lambda stats: num_open(stats) == 1)
        engine.allow(None)
        whole(other.events(), None)
        with suppress(ConnectionResetError):
            list(stalled.frames())  # which ends


def test_a_client_that_answers_no_ping_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PING_S", "PONG_S"):
        monkeypatch.setattr(f"ultrafast.serving.server.{name}", 0.1)
    with served(ScriptedEngine("Fine.", paced=True)) as server, RawSocket(server.port) as client:
        client.send(frame_of())
        with suppress(ConnectionResetError):
            list(client.frames())  # which end, though the response has not; the pings among them get no answer
        server.wait_for(lambda _: not connections(server))
        server.wait_for(lambda stats: num_open(stats) == 0)


def test_a_failure_of_ours_is_told_and_logged_and_the_socket_stays_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    with served(ScriptedEngine("Fine.")) as server, talk(server.port) as client:
        with monkeypatch.context() as patch:
            patch.setattr(server.loop, "submit_all", broken)
            client.create(stream_id="a")
            error = client.error()
        assert (error["status"], error["type"], error["stream_id"]) == (500, "server_error", "a")
        assert client.connection.response is not None
        assert f"{client.connection.response.headers['x-request-id']}-1" in error["message"]
        assert "ZeroDivisionError" in caplog.text
        client.turn()


def test_shutdown_finishes_what_runs_and_refuses_the_rest() -> None:
    engine = ScriptedEngine("Fine.", paced=True)
    with served(engine) as server, talk(server.port) as idle, talk(server.port) as busy:
        busy.create("A", stream_id="a")
        busy.create("B", stream_id="a")
        begun = [busy.receive() for _ in range(2)]
        server.server.stop()
        assert idle.closed() == 1012
        with pytest.raises(InvalidStatus) as refused, talk(server.port):
            pass
        assert refused.value.response.status_code == 503
        assert int(refused.value.response.headers["retry-after"]) >= 1
        engine.allow(None)
        whole(begun + busy.events(), "a")
        error = busy.error()
        assert (error["status"], error["code"], error["stream_id"]) == (503, "server_is_overloaded", "a")
        assert busy.closed() == 1012
