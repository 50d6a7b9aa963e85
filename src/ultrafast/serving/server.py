"""From a bound socket to a served one, and back: bind, run, drain.

The first Ctrl-C (or SIGTERM) drains: running requests finish, new ones get 503, then the process ends with 0.
A second one ends it at once.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Sequence
from types import FrameType

import uvicorn

from ultrafast.engine.loop import EngineLoop
from ultrafast.errors import ConfigError
from ultrafast.serving.app import create_app
from ultrafast.serving.edge import is_loopback
from ultrafast.serving.isolation import Isolation
from ultrafast.serving.store import ResponseStore
from ultrafast.serving.upgrade import MAX_FRAME, PING_S, PONG_S, WebSocketProtocol
from ultrafast.serving.wire.socket import Sockets

_BACKLOG = 2048
_SLOW_READER_S = 10  # how long, after the last token, a client may take to read it before a drain cuts it off
STALL_S = 60.0  # how long a client may take nothing of what was sent to it
_KEEP_ALIVE_S = 75  # longer than the pools of common clients keep a connection, so that it is they who close it
_WHAT_TO_DO = {
    errno.EADDRINUSE: "stop what uses it, or choose another with --port",
    errno.EACCES: "choose a port above 1023 with --port",
}


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, taken before the model is loaded so that a port in use costs no waiting.

    Connections made while the model loads wait in the backlog. Port 0 takes a free one.

    Raises:
        ConfigError: the address cannot be had; says why and what to do.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot resolve host {host!r}: {error}; give an address with --host") from None
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere the option would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _drop_stalled(listener)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        what_to_do = _WHAT_TO_DO.get(error.errno or 0, "give an address of this machine with --host")
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; {what_to_do}") from None
    return listener


def _drop_stalled(listener: socket.socket) -> None:
    """Have the system end connections whose peer takes nothing for `STALL_S`: nothing in the process can abort them.

    Connections inherit it. Where a system has no such option, its own retransmission limits hold.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALL_S * 1000))


def run(
    loops: Sequence[EngineLoop],
    listener: socket.socket,
    *,
    started_at: float,
    isolation: Isolation = Isolation.NONE,
    store: ResponseStore | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM, then drain and return; prints one line when ready.

    Args:
        loops: one a model, not yet started; closed on return.
        listener: from `bind`.
        started_at: ``time.monotonic()`` at the program's start, for the ready line.
        isolation: what separates requests in the caches.
        store: where responses are kept, closed on return; None: nowhere.
    """
    host = listener.getsockname()[0]
    if not is_loopback(host):
        print(f"Warning: {host} is reachable from other machines, and no keys are asked for.", flush=True)
    Server(loops, listener, started_at=started_at, isolation=isolation, store=store).run()


class Server(uvicorn.Server):
    """uvicorn, with a drain that still answers, and without its ten wake-ups a second when idle."""

    def __init__(
        self,
        loops: Sequence[EngineLoop],
        listener: socket.socket,
        *,
        started_at: float,
        isolation: Isolation = Isolation.NONE,
        store: ResponseStore | None = None,
    ) -> None:
        loopback_only = is_loopback(listener.getsockname()[0])
        app = create_app(loops, loopback_only=loopback_only, isolation=isolation, store=store)
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="on",
                ws=WebSocketProtocol,
                ws_max_size=MAX_FRAME,
                ws_ping_interval=PING_S,
                ws_ping_timeout=PONG_S,
                ws_per_message_deflate=False,  # an offer of it is declined: it costs time and memory on every event
                access_log=False,
                log_level="warning",
                server_header=False,
                date_header=False,  # it would need a wake-up every second
                proxy_headers=False,  # nothing here asks who the client is
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_SLOW_READER_S,
            )
        )
        self._loops = loops
        self._sockets: Sockets = app.state.sockets
        self._listener = listener
        self._started_at = started_at
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._drain: asyncio.Task[None] | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on the listener until stopped."""
        super().run(sockets or [self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, then say so."""
        self._event_loop = asyncio.get_running_loop()
        await super().startup(sockets)
        host, port = self._listener.getsockname()[:2]
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        ready_s = time.monotonic() - self._started_at
        models = ", ".join(loop.engine.model_id for loop in self._loops)
        print(f"Ultrafast serving {models} at http://{where}/v1  (ready in {ready_s:.1f} s)", flush=True)

    async def main_loop(self) -> None:
        """Sleep until stopped."""
        await self._stop.wait()

    def stop(self) -> None:
        """Drain, then stop; from any thread."""
        assert self._event_loop is not None
        self._event_loop.call_soon_threadsafe(self._begin_drain)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ctrl-C and SIGTERM: drain; the second time, leave at once."""
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True
        if self._event_loop is not None:
            self.stop()

    def _begin_drain(self) -> None:
        stats = [loop.stats() for loop in self._loops]
        if num_open := sum(counts["running"] + counts["waiting"] for counts in stats):
            print(f"Draining: {num_open} running; Ctrl-C again leaves at once", flush=True)
        self._drain = asyncio.create_task(self._drain_and_stop())

    async def _drain_and_stop(self) -> None:
        sockets = asyncio.create_task(self._sockets.drain())
        await asyncio.gather(*(loop.drain() for loop in self._loops))
        await asyncio.wait([sockets], timeout=_SLOW_READER_S)
        sockets.cancel()
        self._stop.set()
