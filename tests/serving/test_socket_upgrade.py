"""The upgrade to a WebSocket: what is agreed, and who is refused."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from support.marked_chat import marked_engine
from support.scripted_engine import ScriptedEngine
from support.served import served
from support.socket_client import leave_no_trace, talk


def test_compression_is_declined_and_any_header_welcome() -> None:
    headers = {"openai-beta": "responses_websockets=2026-02-06", "authorization": "Bearer x", "x-request-id": "mine-1"}
    engine = marked_engine("Fine.")
    with served(engine) as server, talk(server.port, compression="deflate", additional_headers=headers) as client:
        answer = client.connection.response
        assert answer is not None
        assert "sec-websocket-extensions" not in answer.headers
        assert answer.headers["x-request-id"] == "mine-1"
        client.turn("A")
        client.turn("B")
        assert [request.id for request in engine.requests] == ["mine-1-1", "mine-1-2"]


@pytest.mark.parametrize("page", [{"origin": "http://evil.example"}, {"origin": "null"}, {"name": "evil.example"}])
def test_web_pages_cannot_connect(page: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with served(ScriptedEngine()) as server:
        with pytest.raises(InvalidStatus) as refused, talk(server.port, **page):
            pass
        response = refused.value.response
        assert response.status_code == 403
        assert json.loads(bytes(response.body or b""))["error"]["code"] == "host_not_allowed"
        assert response.headers["x-request-id"].startswith("req_")
        with talk(server.port, origin="http://localhost:3000") as client:
            client.turn("A")
    assert capfd.readouterr().err == ""


def test_there_is_no_other_socket() -> None:
    with served(ScriptedEngine()) as server:
        with pytest.raises(InvalidStatus) as refused, talk(server.port, path="/v1/chat/completions"):
            pass
        assert refused.value.response.status_code == 404
        assert httpx.get(f"{server.url}/responses", timeout=30).status_code == 405


def test_broken_upgrades_are_refused_and_forgotten() -> None:
    """Also when they are such that what reads them cannot say what is wrong."""
    lines = [
        b"Host: localhost",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    broken = [
        (b"POST", [*lines, b"Content-Length: 0"]),
        (b"GET", [*lines, b"Content-Length: 5"]),
        (b"GET", [*lines, b"Transfer-Encoding: chunked"]),
        (b"GET", [*lines, b"Sec-WebSocket-Protocol: \xff,,"]),
        (b"GET", [*lines, *(b"X-%d: 1" % index for index in range(300))]),
        (b"GET", [*lines, b"X: " + b"a" * 9000]),
        (b"GET", lines[:-1]),
        (b"GET", [*lines, lines[-1]]),
        (b"GET", [*lines[:-2], b"Sec-WebSocket-Version: 8", lines[-1]]),
    ]
    with served(ScriptedEngine("Fine.")) as server:
        for method, headers in broken:
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
                client.sendall(b"\r\n".join([method + b" /v1/responses HTTP/1.1", *headers, b"", b""]))
                answer = b"".join(iter(lambda: client.recv(4096), b""))
                assert answer.startswith(b"HTTP/1.1 4"), (method, headers, answer)
        leave_no_trace(server)
