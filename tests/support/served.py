"""A real server on a loopback port, in a thread of the test's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp

from ultrafast.engine.loop import EngineLoop
from ultrafast.serving.server import Server, bind
from ultrafast.serving.store import ResponseStore


@dataclass
class Served:
    server: Server
    loop: EngineLoop
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def wait_for(self, condition: Any, *, limit_s: float = 10.0) -> float:
        """Poll the loop's stats until the condition holds of them; returns the seconds it took."""
        start = time.monotonic()
        pause = threading.Event()
        while not condition(self.loop.stats()):
            pause.wait(0.001)  # the server, in this same process, needs the interpreter
            assert time.monotonic() - start < limit_s, f"not within {limit_s} s: {self.loop.stats()}"
        return time.monotonic() - start


@contextmanager
def served(engine: Any, *, port: int = 0, wrap: Callable[[ASGIApp], ASGIApp] | None = None) -> Iterator[Served]:
    """Serve the engine until the end of the block, then drain.

    Args:
        port: 0 takes a free one.
        wrap: puts something around the application.
    """
    listener = bind("127.0.0.1", port)
    port = listener.getsockname()[1]
    loop = EngineLoop(engine)
    server = Server([loop], listener, started_at=time.monotonic(), store=ResponseStore())
    if wrap is not None:
        server.config.app = wrap(server.config.app)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run)
    thread.start()
    ready = threading.Event()
    try:
        while not server.started and thread.is_alive():
            ready.wait(0.01)
        yield Served(server, loop, port)
    finally:
        server.stop()
        thread.join(timeout=30)
        assert not thread.is_alive(), "the server did not drain"
