"""`ultrafast tiers` and `ultrafast top` on servers that run, that do not, and that are something else."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from support.scripted_engine import ScriptedEngine
from support.served import Served, served
from ultrafast.cli.running import RunningServer
from ultrafast.engine.tiers import TIERS
from ultrafast.errors import ConfigError, ServerError

PROGRAM = [sys.executable, "-c", "from ultrafast.cli.main import main; main()"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, env=environment, timeout=60)


@contextmanager
def asked(server: Served, engine: ScriptedEngine, tier: str) -> Iterator[None]:
    """One request runs, and has brought two tokens."""
    body = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}], "stream": True, "service_tier": tier}
    engine.allow(2)
    with httpx.Client(timeout=20) as client, client.stream("POST", f"{server.url}/chat/completions", json=body) as got:
        assert got.status_code == 200
        server.wait_for(lambda stats: stats["running"] == 1 and engine.num_steps == 2)
        yield


def test_tiers_shows_the_lanes() -> None:
    engine = ScriptedEngine(paced=True)
    with served(engine) as server, asked(server, engine, "ultrafast"):
        done = run("tiers", "--url", server.url)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("scripted: ultrafast gets 90% ")
    rows = {line.split()[0]: line.split() for line in lines if line.split()[:1] and line.split()[0] in TIERS}
    assert list(rows) == list(TIERS)
    assert rows["ultrafast"][1] == "1/4"
    assert rows["flex"][1] == "0/16"


def test_tiers_as_json_is_the_answer_of_the_endpoint() -> None:
    with served(ScriptedEngine()) as server:
        done = run("tiers", "--json", "--url", server.url.removesuffix("/v1"))
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout) == httpx.get(f"{server.url}/tiers").json()


def test_top_without_a_terminal_is_one_frame() -> None:
    engine = ScriptedEngine(paced=True)
    with served(engine) as server, asked(server, engine, "fast"):
        done = run("top", "--url", server.url)
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("req_")]
    assert row[1:3] == ["fast", "decode"]
    assert row[5] == "2"
    assert "\x1b" not in done.stdout


@contextmanager
def other_server(status: int, body: bytes) -> Iterator[str]:
    """Something that speaks HTTP and is not ours."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (404, b"", "is not an Ultrafast server: it has no /v1/tiers (404)"),
        (200, b"<html>", "is not an Ultrafast server, or of another version"),
        (200, b'{"object": "list", "data": [{"id": "gpt"}]}', "another version: in its /v1/tiers, Object missing"),
        (503, b'{"error": {"message": "Come back later."}}', "answered 503: Come back later.; it was asked for"),
        (500, b"oops", "answered 500: Internal Server Error; it was asked for"),
    ],
)
def test_an_answer_that_is_not_ours_is_told(status: int, body: bytes, says: str) -> None:
    with other_server(status, body) as url, pytest.raises(ServerError) as caught:
        RunningServer(url).status()
    assert str(caught.value).startswith(url)
    assert says in str(caught.value)


def test_what_does_not_speak_http_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"220 mail ready\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ServerError, match="does not speak HTTP; say where yours is with --url"):
            RunningServer(url).status()
        thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize("command", ["tiers", "tiers --json", "top"])
def test_no_server_is_one_line_that_says_what_to_do(command: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = run(*command.split(), "--url", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"ultrafast: error: no server answers at {url} (Connection refused); "
        "start one with `ultrafast serve`, or say where it is with --url\n"
    )


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://host:99999", "http://[::1"])
def test_what_is_not_an_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--url"):
        RunningServer(url)


def test_a_name_that_does_not_exist_is_told() -> None:
    with pytest.raises(ServerError, match=r"no server answers at http://nowhere\.invalid \("):
        RunningServer("http://nowhere.invalid").status()


class Terminal:
    """`ultrafast top` in a terminal of 80x24."""

    def __init__(self, url: str) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self.screen, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {**os.environ, "TERM": "xterm"}
        environment.pop("COLUMNS", None)
        self.process = subprocess.Popen(
            [*PROGRAM, "top", "--interval", "0.1", "--url", url],
            stdin=side,
            stdout=side,
            stderr=side,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that its Ctrl-C reaches the program
        )
        os.close(side)
        self._seen = b""

    def until(self, text: str) -> None:
        """Read what is drawn until the text has come."""
        while text.encode() not in self._seen:
            self._seen += os.read(self.screen, 65536)
        self._seen = self._seen.partition(text.encode())[2]

    def press(self, keys: bytes) -> int:
        """Type, and return the exit code."""
        os.write(self.screen, keys)
        return self.process.wait(timeout=20)


@contextmanager
def terminal(url: str) -> Iterator[Terminal]:
    found = Terminal(url)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()
        os.close(found.screen)


needs_pty = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")


@needs_pty
@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_top_draws_until_a_key_is_pressed(key: bytes) -> None:
    engine = ScriptedEngine(paced=True)
    with served(engine) as server, terminal(server.url) as top:
        top.until("0 requests")
        with asked(server, engine, "flex"):
            top.until("1 request: 1 decode")
            top.until("req_")
        top.until("0 requests")
        assert top.press(key) == 0


@needs_pty
def test_top_survives_a_server_that_goes_away_and_comes_back() -> None:
    with served(ScriptedEngine()) as server:
        top_of = terminal(server.url)
        top = top_of.__enter__()
        top.until("0 requests")
        port = server.port
    try:
        top.until("no server answers at")
        with served(ScriptedEngine(), port=port):
            top.until("0 requests")
            assert top.press(b"q") == 0
    finally:
        top_of.__exit__(None, None, None)
