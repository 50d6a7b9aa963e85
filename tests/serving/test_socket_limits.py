"""What one connection may take, and how it ends: limits, bad frames, clients that leave or do not read, shutdown."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Opcode

from support.scripted_engine import ScriptedEngine
from support.served import Served, served
from support.socket_client import RawSocket, frame_of, talk, whole
from ultrafast.serving import upgrade
from ultrafast.serving.wire import socket as socket_mode
from ultrafast.serving.wire import socket_lanes

MEBI = 1 << 20


def num_open(stats: dict[str, int]) -> int:
    return stats["running"] + stats["waiting"]


def connections(server: Served) -> set[Any]:
    sockets: socket_mode.Sockets = server.server.config.app.state.sockets  # type: ignore[union-attr]
    return sockets.open


@pytest.mark.parametrize(
    ("frame", "param", "code"),
    [
        (b"{}", None, None),
        ("", None, None),
        ("{", None, None),
        ("[]", None, "invalid_value"),
        ("null", None, "invalid_value"),
        ("7" * 5000, None, None),
        ("[" * 100_000, None, None),
        ('{"type":"response.create","input":' + "[" * 100_000, None, None),
        ("{}", "type", "missing_required_parameter"),
        ('{"type":null}', "type", "missing_required_parameter"),
        ('{"type":["response.create"]}', "type", "missing_required_parameter"),
        ('{"type":"response.cancel"}', "type", "invalid_value"),
        ('{"type":"response.create"}', "model", "missing_required_parameter"),
        ('{"type":"response.create","model":7}', "model", "invalid_value"),
        ('{"type":"response.create","model":"scripted"}', "input", "missing_required_parameter"),
    ],
)
def test_a_bad_frame_is_an_error_and_the_socket_stays_open(frame: Any, param: str | None, code: str | None) -> None:
    with served(ScriptedEngine("Fine.")) as server, talk(server.port) as client:
        client.connection.send(frame)
        error = client.error()
        assert (error["status"], error["type"], error["stream_id"]) == (400, "invalid_request_error", None)
        assert error["param"] == param
        if code is not None:
            assert error["code"] == code
        assert client.turn()["status"] == "completed"


@pytest.mark.parametrize("name", ["", "a b", "é", "a" * 257, "a\n", 7, True, ["a"], {"a": 1}])
def test_an_invalid_stream_id_is_not_repeated(name: Any) -> None:
    with served(ScriptedEngine("Fine.")) as server, talk(server.port) as client:
        client.create(stream_id=name)
        event = client.receive()
        assert "stream_id" not in event
        assert (event["status"], event["error"]["code"], event["error"]["param"]) == (
            400,
            "invalid_stream_id",
            "stream_id",
        )
        assert client.turn(stream_id="aZ0_.-" + "a" * 250)["status"] == "completed"


def test_the_33rd_name_is_refused_and_the_others_go_on() -> None:
    with served(ScriptedEngine("Fine.")) as server, talk(server.port) as client:
        for index in range(32):
            client.turn(stream_id=f"lane-{index}")
        client.create(stream_id="lane-32")
        error = client.error()
        assert (error["status"], error["code"], error["param"], error["stream_id"]) == (
            400,
            "websocket_stream_limit_reached",
            "stream_id",
            "lane-32",
        )
        client.turn(stream_id="lane-0")
        client.turn()


def test_16_responses_run_at_once_and_the_next_one_waits() -> None:
    with served(ScriptedEngine("Fine.", num_slots=32, paced=True)) as server, talk(server.port) as client:
        for index in range(17):
            client.create(stream_id=f"lane-{index}")
        client.connection.send("?")  # its answer tells that all before it were taken
        events = [client.receive() for _ in range(33)]
        server.wait_for(lambda stats: num_open(stats) == 16)
        server.loop.engine.allow(None)  # type: ignore[attr-defined]
        while sum(event["type"] == "response.completed" for event in events) < 17:
            events.append(client.receive())
        for index in range(17):
            whole([event for event in events if event.get("stream_id") == f"lane-{index}"], f"lane-{index}")


def test_too_many_waiting_frames_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_lanes, "MAX_WAITING", 3)
    with served(ScriptedEngine("Fine.", paced=True)) as server, talk(server.port) as client:
        client.create(stream_id="a")
        begun = [client.receive() for _ in range(2)]
        for _ in range(5):
            client.create(stream_id="a")
        refused = [client.receive() for _ in range(2)]
        assert [(event["status"], event["stream_id"]) for event in refused] == [(429, "a")] * 2
        assert refused[0]["error"]["headers"]["retry-after"] == "1"
        server.loop.engine.allow(None)  # type: ignore[attr-defined]
        whole(begun + client.events(), "a")
        for _ in range(3):
            whole(client.events(), "a")


def test_too_many_waiting_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_lanes, "MAX_WAITING_BYTES", 4000)
    with served(ScriptedEngine("Fine.", paced=True)) as server, talk(server.port) as client:
        client.create("A")
        begun = [client.receive() for _ in range(2)]
        for _ in range(3):
            client.create("B", user="x" * 1500)
        assert client.error()["status"] == 429
        server.loop.engine.allow(None)  # type: ignore[attr-defined]
        whole(begun + client.events(), None)
        for _ in range(2):
            whole(client.events(), None)


def test_memory_is_bounded_and_the_oldest_turns_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_lanes, "MAX_REMEMBERED_BYTES", 3000)
    with served(ScriptedEngine("Fine.")) as server, talk(server.port) as client:
        turns = [client.turn("x" * 1000, stream_id=name) for name in "abc"]
        client.create("B", previous_response_id=turns[0]["id"], stream_id="a")
        assert client.error()["code"] == "previous_response_not_found"
        client.turn("B", previous_response_id=turns[2]["id"], stream_id="c")
        huge = client.turn("x" * 3000)
        client.create("B", previous_response_id=huge["id"])
        assert client.error()["code"] == "previous_response_not_found"


def test_a_message_of_64_mib_is_taken_and_a_longer_one_ends_the_connection() -> None:
    with served(ScriptedEngine("Fine.")) as server:
        empty = len(frame_of(ignored=""))
        with talk(server.port) as client:
            client.connection.send(frame_of(ignored="x" * (64 * MEBI - empty)))
            assert client.events()[-1]["type"] == "response.completed"
            with suppress(ConnectionClosed):  # perhaps before it has been sent whole
                client.connection.send(frame_of(ignored="x" * (64 * MEBI - empty + 1)))
            assert client.closed() == 1009
        with talk(server.port) as client:
            with suppress(ConnectionClosed):
                client.connection.send(["{"] + ["x" * MEBI] * 64)  # the same in fragments
            assert client.closed() == 1009
        server.wait_for(lambda _: not connections(server))


def test_text_that_is_not_utf_8_ends_the_connection() -> None:
    with served(ScriptedEngine("Fine.")) as server, RawSocket(server.port) as client:
        client.protocol.send_text(b'{"type":"response.create","model":"\xff"}')
        client.flush()
        (close,) = client.frames()
        assert (close.opcode, close.data[:2]) == (Opcode.CLOSE, struct.pack(">H", 1007))


def test_a_long_life_ends_with_an_error_and_a_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_mode, "LIFETIME_S", 0.05)
    with served(ScriptedEngine("Fine.")) as server, talk(server.port) as client:
        error = client.error()
        assert (error["status"], error["code"]) == (400, "websocket_connection_limit_reached")
        assert client.closed() == 1001


def test_at_the_end_of_its_life_what_runs_is_finished_and_what_waits_refused() -> None:
    with served(ScriptedEngine("Fine.", paced=True)) as server, talk(server.port) as client:
        client.create("A", stream_id="a")
        client.create("B", stream_id="a")
        begun = [client.receive() for _ in range(2)]
        (connection,) = connections(server)
        in_server(server, connection.expire)
        client.create("C", stream_id="c")
        refused = client.error()
        assert (refused["code"], refused["stream_id"]) == ("websocket_connection_limit_reached", "c")
        server.loop.engine.allow(None)  # type: ignore[attr-defined]
        whole(begun + client.events(), "a")
        assert client.error()["stream_id"] == "a"
        assert client.error()["stream_id"] is None
        assert client.closed() == 1001


def test_too_many_connections_are_closed_to_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_mode, "MAX_CONNECTIONS", 1)
    with served(ScriptedEngine("Fine.")) as server:
        with talk(server.port) as first:
            with talk(server.port) as second:
                assert second.closed() == 1013
            first.turn()
        server.wait_for(lambda _: not connections(server))
        with talk(server.port) as third:
            third.turn()


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


def in_server(server: Served, call: Any) -> None:
    """Have the server's event loop call something, and wait for that."""
    done = threading.Event()
    event_loop = server.server._event_loop
    assert event_loop is not None
    event_loop.call_soon_threadsafe(lambda: (call(), done.set()))
    assert done.wait(30)
