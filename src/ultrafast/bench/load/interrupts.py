"""Ctrl-C as something to look at between two steps: what is under way is ended in order, and what is done is kept."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self


class Interrupts:
    """Counts them while its block runs; the third ends the program as usual. For the main thread only."""

    def __init__(self) -> None:
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 2:
            raise KeyboardInterrupt
