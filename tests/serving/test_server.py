"""The process around the application: its port, its ready line, its end."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support.idle import needs_proc, num_wake_ups_when_idle
from support.scripted_engine import ScriptedEngine, text_of
from support.served import served
from ultrafast.errors import ConfigError
from ultrafast.serving.server import bind

TESTS = Path(__file__).parent.parent
ASK = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
READY = re.compile(r"Ultrafast serving scripted at (http://127\.0\.0\.1:\d+/v1)  \(ready in \d+\.\d s\)\n")


class Program:
    """A scripted server in its own process; see `support.scripted_server`."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.scripted_server"],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready = READY.fullmatch(self.process.stdout.readline())
        assert ready, self.process.communicate()
        self.url = ready[1]

    def allow(self, steps: int | None) -> None:
        assert self.process.stdin is not None
        if steps is None:
            self.process.stdin.close()
        else:
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()

    def health(self) -> httpx.Response:
        return httpx.get(self.url.removesuffix("/v1") + "/health", timeout=10)

    def wait(self) -> int:
        return self.process.wait(timeout=20)


@contextmanager
def program() -> Iterator[Program]:
    program = Program()
    try:
        yield program
    finally:
        program.process.kill()
        for pipe in (program.process.stdin, program.process.stdout, program.process.stderr):
            assert pipe is not None
            pipe.close()
        program.wait()


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains(sig: signal.Signals) -> None:
    """What runs is finished, what comes is refused, and the exit status is 0."""
    with program() as server, httpx.Client(timeout=10) as client:
        server.allow(3)
        with client.stream("POST", f"{server.url}/chat/completions", json=ASK) as answer:
            lines = answer.iter_lines()
            assert "assistant" in next(lines)
            server.process.send_signal(sig)
            while (health := server.health()).status_code == 200:
                pass
            assert health.json()["status"] == "draining"
            refused = httpx.post(f"{server.url}/chat/completions", json=ASK, timeout=10)
            assert refused.status_code == 503
            assert refused.json()["error"]["type"] == "service_unavailable_error"
            server.allow(None)
            rest = "\n".join(lines)
        assert rest.endswith("data: [DONE]\n")
        assert server.wait() == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == "Draining: 1 running; Ctrl-C again leaves at once\n"
        assert server.process.stderr is not None
        assert server.process.stderr.read() == ""


def test_a_second_signal_ends_it_at_once() -> None:
    with program() as server, httpx.Client(timeout=10) as client:
        server.allow(3)
        with client.stream("POST", f"{server.url}/chat/completions", json=ASK):
            server.process.send_signal(signal.SIGINT)
            while server.health().status_code == 200:
                pass
            server.process.send_signal(signal.SIGINT)
            assert server.wait() == 128 + signal.SIGINT


@needs_proc
def test_an_idle_server_wakes_for_nothing() -> None:
    with program() as server:
        assert server.health().status_code == 200
        assert num_wake_ups_when_idle(server.process.pid) <= 1


def test_a_port_in_use_is_one_clear_line() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use; .*--port"
        ):
            bind("127.0.0.1", port)


def test_a_host_that_is_none_of_ours() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0: .* with --host"):
        bind("192.0.2.1", 0)
    with pytest.raises(ConfigError, match="cannot resolve host"):
        bind("a..b", 0)


def test_clients_that_come_before_the_server_is_ready_wait() -> None:
    with bind("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), timeout=5):
        pass


def test_loopback_is_checked_by_host_and_other_addresses_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    with served(ScriptedEngine()) as server:
        url = f"http://127.0.0.1:{server.port}/health"
        assert httpx.get(url).status_code == 200
        assert httpx.get(url, headers={"host": "evil.example"}).status_code == 403
    assert "Warning" not in capsys.readouterr().out


def test_one_connection_serves_many_requests() -> None:
    with served(ScriptedEngine()) as server, httpx.Client(base_url=server.url, timeout=10) as client:
        for index in range(50):
            answer = client.post("chat/completions", json={**ASK, "stream": index % 2 == 0, "max_tokens": 5})
            assert answer.status_code == 200
            assert "date" not in answer.headers
        refused = client.post("chat/completions", content=b" " * (9 * 2**20))
        assert refused.status_code == 413
        assert client.get("models").status_code == 200


def test_a_slow_reader_of_a_real_socket_gets_everything() -> None:
    script = "0123456789" * 200_000
    with served(ScriptedEngine(script, num_slots=1)) as server, httpx.Client(timeout=20) as client:
        engine = server.loop.engine
        engine.max_context = len(script) + 100
        with client.stream("POST", f"{server.url}/chat/completions", json={**ASK, "max_tokens": 30_000}) as answer:
            other = httpx.post(
                f"{server.url}/chat/completions", json={**ASK, "stream": False, "max_tokens": 10}, timeout=20
            )
            assert other.json()["choices"][0]["message"]["content"] == text_of(10, script)
            body = "".join(answer.iter_text())
        assert body.endswith("data: [DONE]\n\n")
        assert body.count('"content":"') < 30_000


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system cannot end stalled connections")
def test_a_reader_that_stalls_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not read fills the buffers on the way; its request is cancelled then, and others are served."""
    monkeypatch.setattr("ultrafast.serving.server.STALL_S", 0.3)
    script = "0123456789" * 20_000
    engine = ScriptedEngine(script, paced=True)
    engine.max_context = len(script) + 100
    ask = {**ASK, "logprobs": True, "top_logprobs": 20, "max_tokens": len(script) - 1}
    body = json.dumps(ask).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with served(engine) as server, socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect(("127.0.0.1", server.port))
        stalled.sendall(head + body)
        server.wait_for(lambda stats: stats["running"] == 1)
        engine.allow(6_000)  # of 2 kB each; it can never end by itself
        server.wait_for(lambda stats: stats["running"] == 0, limit_s=30)
        engine.allow(None)
        other = httpx.post(f"{server.url}/chat/completions", json={**ASK, "stream": False, "max_tokens": 10})
        assert other.json()["choices"][0]["message"]["content"] == text_of(10, script)
