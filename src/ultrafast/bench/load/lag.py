"""How late this process reads what has come: bytes that a thread puts into a socket, and when the event loop gets them.

Each says when it should have been put there: a process that does not run at all for a while is as late as one that is
busy, and is found so as often as time passed. Timers of an event loop would not do: they are rounded to a millisecond.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Self

INTERVAL_S = 0.005
_STAMP = struct.Struct("d")


class LoopLag:
    """Measures while its block runs; `lags_s` has a sample each `INTERVAL_S`, in seconds."""

    def __init__(self) -> None:
        self.lags_s: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Self:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._read)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._loop.remove_reader(self._reader)
        self._reader.close()
        self._writer.close()

    def _write(self) -> None:
        due = time.monotonic() + INTERVAL_S
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            self._writer.send(_STAMP.pack(due))
            due += INTERVAL_S

    def _read(self) -> None:
        stamps = self._reader.recv(1 << 16)
        now = time.monotonic()
        self.lags_s.extend(now - stamp for (stamp,) in _STAMP.iter_unpack(stamps[: len(stamps) // 8 * 8]))
