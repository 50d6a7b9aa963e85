"""The one thread that owns an `Engine`, and the way to it from asyncio.

::

    event loop                              engine thread
    submit ──► arrived ─┐                   wait ► admit ► step ► deliver, for ever
    cancel ──► cancelled┴─ wakes, and ends the running burst early
    TokenStream ◄── one call_soon_threadsafe per step, whatever the number of streams

Without work the thread sleeps on a condition: no polling, so an idle server uses no CPU.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from ultrafast.engine.stream import TokenStream, merge
from ultrafast.errors import QueueFull, RequestError
from ultrafast.types import GenerateRequest, TokenDelta

if TYPE_CHECKING:
    from ultrafast.engine.engine import Engine
    from ultrafast.engine.sequence import Sequence

__all__ = ["MAX_OPEN", "EngineLoop", "TokenStream"]

MAX_OPEN = 1024  # requests held at once, running or waiting; beyond, 429: a queue without end helps nobody

_log = logging.getLogger(__name__)
_Outcome = list[tuple[TokenStream, TokenDelta | RequestError]]


class EngineLoop:
    """Runs an engine on its own thread; ``submit`` and the streams belong to asyncio.

    Args:
        engine: from here on only the loop's thread may step it; it is closed with the loop.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._changed = threading.Condition()  # guards the four below; notified on every change of them
        self._arrived: list[TokenStream] = []
        self._cancelled: list[TokenStream] = []
        self._draining = False
        self._closing = False
        # Written by the engine thread alone; others only read a length or a reference.
        self._active: dict[Sequence, TokenStream] = {}
        self._stats: dict[str, int] = engine.stats()
        self._thread = threading.Thread(target=self._run, name="ultrafast-engine", daemon=True)

    # ---- from asyncio -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, once."""
        self._thread.start()

    async def submit(
        self, request: GenerateRequest, *, news: asyncio.Event | None = None, whole: bool = False
    ) -> TokenStream:
        """Queue a request and return the stream of its tokens.

        Args:
            request: checked here, so that a bad one is refused before anything runs.
            news: event to set when the stream has something; several streams may share one.
            whole: bring everything as one delta at the end, without a wake-up of the event loop before.

        Raises:
            RequestError: the engine refuses the request (400), is draining (503) or holds `MAX_OPEN` (429).
        """
        self.engine.check(request)
        stream = TokenStream(request, news or asyncio.Event(), cancel=self._cancel, whole=whole)
        with self._changed:
            if self._draining:
                raise _shutting_down()
            if len(self._arrived) + len(self._active) >= MAX_OPEN:
                raise QueueFull(f"{MAX_OPEN} requests are already running or waiting; try again later")
            self._arrived.append(stream)
            self._changed.notify_all()
        self.engine.interrupt()
        return stream

    def stats(self) -> dict[str, int]:
        """The engine's counts (running, waiting, free_blocks, num_blocks) as of its last turn."""
        stats = dict(self._stats)
        stats["waiting"] += len(self._arrived)
        return stats

    @property
    def draining(self) -> bool:
        """Whether new requests are refused."""
        return self._draining

    async def drain(self) -> None:
        """Refuse new requests from now on; return when the last one has finished."""
        with self._changed:
            self._draining = True
        await asyncio.to_thread(self._wait_until_empty)

    async def close(self) -> None:
        """Fail what still runs (503), close the engine and join the thread. Safe to call twice."""
        with self._changed:
            self._draining = self._closing = True
            self._changed.notify_all()
        self.engine.interrupt()
        await asyncio.to_thread(self._thread.join)

    def _cancel(self, stream: TokenStream) -> None:
        with self._changed:
            self._cancelled.append(stream)
            self._changed.notify_all()
        self.engine.interrupt()

    def _wait_until_empty(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or not (self._arrived or self._active))

    # ---- on the engine thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait_for_work():
            outcome: _Outcome = []
            try:
                self._admit(outcome)
                self._step(outcome)
            except Exception:
                _log.exception("an engine step failed")
                self._fail_running(outcome)
            self._stats = self.engine.stats()
            self._deliver(outcome)
        self._deliver([(stream, _shutting_down()) for stream in [*self._active.values(), *self._arrived]])
        self.engine.close()

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to do; False when the loop closes."""
        with self._changed:
            if not self._active:
                self._changed.notify_all()  # whoever drains
            self._changed.wait_for(lambda: self._closing or self._arrived or self._cancelled or self._active)
            return not self._closing

    def _admit(self, outcome: _Outcome) -> None:
        """Give the engine what arrived, and take from it what was cancelled."""
        with self._changed:
            arrived, cancelled = self._arrived, self._cancelled
            self._arrived, self._cancelled = [], []
            # Still under the lock: a draining caller must not see a moment with the request in neither place.
            for stream in arrived:
                if not stream.cancelled:
                    self._add(stream, outcome)
        for stream in cancelled:
            sequence = stream.sequence
            if sequence is not None and sequence in self._active:
                del self._active[sequence]
                self.engine.cancel(sequence)
        if arrived or cancelled:
            self._stats = self.engine.stats()  # told before the burst, not after it

    def _add(self, stream: TokenStream, outcome: _Outcome) -> None:
        try:
            stream.sequence = self.engine.add(stream.request)
            self._active[stream.sequence] = stream
        except RequestError as error:
            outcome.append((stream, error))
        except Exception:
            _log.exception("the engine could not take a request")
            outcome.append((stream, _engine_failed()))

    def _step(self, outcome: _Outcome) -> None:
        if not self._active:
            return
        for sequence, delta in self.engine.step():
            stream = self._active[sequence]
            if delta.finish_reason is not None:
                del self._active[sequence]
            if stream.whole:
                stream.withheld.append(delta)
                if delta.finish_reason is None:
                    continue
                delta = merge(stream.withheld)
            outcome.append((stream, delta))

    def _fail_running(self, outcome: _Outcome) -> None:
        """After a failed step: fail the requests it may have touched, keep those that had not begun.

        When none had begun, the step failed on taking one up; all fail, or the next step would fail again.
        """
        begun = [sequence for sequence in self._active if sequence.timings.started]
        for sequence in begun or list(self._active):
            outcome.append((self._active.pop(sequence), _engine_failed()))
            try:
                self.engine.cancel(sequence)
            except Exception:
                _log.exception("the engine could not drop a failed request")

    def _deliver(self, outcome: _Outcome) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, _Outcome] = {}
        for stream, item in outcome:
            by_loop.setdefault(stream.event_loop, []).append((stream, item))
        for event_loop, batch in by_loop.items():
            try:
                event_loop.call_soon_threadsafe(_hand_over, batch)
            except RuntimeError:  # that event loop is closed: nobody is left to read
                for stream, _ in batch:
                    self._cancel(stream)


def _hand_over(batch: _Outcome) -> None:
    for stream, item in batch:
        stream.receive(item)


def _engine_failed() -> RequestError:
    return RequestError(
        "The engine failed while serving this request. Try again; the server's log has the cause.",
        status=500,
        type="server_error",
        code="server_error",
    )


def _shutting_down() -> RequestError:
    return RequestError(
        "The server is shutting down and takes no new requests.",
        status=503,
        type="service_unavailable_error",
        code="server_is_overloaded",
        retry_after=5.0,
    )
