"""Callers on any thread, each of whom waits for one sequence: whoever waits makes the next step for all."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from ultrafast.engine.sequence import Sequence
from ultrafast.errors import RequestError
from ultrafast.types import GenerateRequest, TokenDelta


class Stepped(Protocol):
    """What is needed of an engine here."""

    def add(self, request: GenerateRequest) -> Sequence: ...
    def step(self) -> list[tuple[Sequence, TokenDelta | RequestError]]: ...
    def cancel(self, sequence: Sequence) -> None: ...


class Callers:
    """A mailbox for each caller.

    Args:
        engine: that they share.
        lock: of its sequences; held while it steps.
    """

    def __init__(self, engine: Stepped, lock: threading.RLock) -> None:
        self._engine = engine
        self._lock = lock
        self._mailboxes: dict[Sequence, deque[TokenDelta | RequestError]] = {}

    @property
    def count(self) -> int:
        """Callers that wait, or have not taken all."""
        return len(self._mailboxes)

    def begin(self, request: GenerateRequest) -> Sequence:
        """Queue a request; `deltas` brings its tokens."""
        with self._lock:  # held throughout, or another thread's step could bring a delta before the mailbox is there
            sequence = self._engine.add(request)
            self._mailboxes[sequence] = deque()
        return sequence

    def deltas(self, sequence: Sequence) -> Iterator[TokenDelta]:
        """What each burst adds to a sequence; closing the iterator cancels it.

        Raises:
            RequestError: it failed.
        """
        mailbox = self._mailboxes[sequence]
        try:
            while True:
                with self._lock:
                    while not mailbox:
                        if sequence.finish_reason is not None:
                            return  # cancelled when the engine was closed
                        for other, item in self._engine.step():
                            if other in self._mailboxes:
                                self._mailboxes[other].append(item)
                    item = mailbox.popleft()
                if isinstance(item, RequestError):
                    raise item
                yield item
                if item.finish_reason is not None:
                    return
        finally:
            with self._lock:
                self._mailboxes.pop(sequence, None)
                self._engine.cancel(sequence)
