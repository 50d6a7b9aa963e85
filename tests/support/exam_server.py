"""A Chat Completions endpoint that answers as a test says, streamed, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Said:
    """One answer.

    Attributes:
        status: other than 200 refuses.
        delay_s: before the first token, and again before the last.
        cut: end the connection in the middle.
        stalls: send nothing until the client leaves.
    """

    text: str = "Explanation: so it is.\nAnswer: 42\nConfidence: 80%"
    status: int = 200
    delay_s: float = 0.0
    tokens: int = 10
    cut: bool = False
    stalls: bool = False


class ExamServer(ThreadingHTTPServer):
    """
    Attributes:
        say: the answer to a body.
        bodies: what was asked, warm-ups too, in order.
        ended: how many of them were answered in full.
    """

    daemon_threads = True

    def __init__(self, say: Callable[[dict[str, Any]], Said]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.say = say
        self.bodies: list[dict[str, Any]] = []
        self.ended = 0
        self.changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def asked(self, ids: list[str]) -> Counter[tuple[str, str]]:
        """How often each tier was asked each question; questions hold their id in brackets."""
        return Counter(
            (body["service_tier"], name)
            for body in list(self.bodies)
            for name in ids
            if f"[{name}]" in str(body["messages"])
        )

    def wait_for_asks(self, number: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.bodies) >= number, timeout=30)


@contextmanager
def exam_server(say: Callable[[dict[str, Any]], Said] = lambda body: Said()) -> Iterator[ExamServer]:
    with ExamServer(say) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: ExamServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            return self._whole(200, {"data": [{"id": "examinee"}]})
        return self._whole(404, {"error": {"message": "not here"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.changed:
            self.server.bodies.append(body)
            self.server.changed.notify_all()
        said = self.server.say(body)
        if said.status != 200:
            return self._whole(said.status, {"error": {"message": f"refused with {said.status}"}})
        try:
            self._stream(body, said)
        except (BrokenPipeError, ConnectionResetError):  # the client was killed
            self.close_connection = True
        return None

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _stream(self, body: dict[str, Any], said: Said) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if said.stalls:
            self.close_connection = True
            self.rfile.read(1)
            return
        head = {"id": "a", "object": "chat.completion.chunk", "service_tier": body.get("service_tier")}
        half = len(said.text) // 2
        for text, reason in ((said.text[:half], None), (said.text[half:], "stop")):
            time.sleep(said.delay_s)
            self._event({**head, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]})
            if said.cut:
                self.close_connection = True
                return
        usage = {"prompt_tokens": 20, "completion_tokens": said.tokens, "total_tokens": 20 + said.tokens}
        self._event({**head, "choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")
        with self.server.changed:
            self.server.ended += 1
            self.server.changed.notify_all()

    def _event(self, event: dict[str, Any]) -> None:
        self._chunk(b"data: %b\n\n" % json.dumps(event).encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _whole(self, status: int, answer: Any) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
