"""The one thread that owns an `Engine`, and the way to it from asyncio.

::

    event loop                              engine thread
    submit ──► arrived ─┐                   wait ► add ► expire ► step ► deliver, for ever
    cancel ──► cancelled┴─ wakes, and ends the running burst early
    TokenStream ◄── one call_soon_threadsafe per step, whatever the number of streams

`Admission` is asked at submission, and told of the end of every request. Without work the thread sleeps on a condition:
no polling, so an idle server uses no CPU. Time limits are looked at once a turn: who waits or runs keeps turns coming.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

from ultrafast.engine.admission import Admission, Ticket
from ultrafast.engine.stream import TokenStream, merge
from ultrafast.engine.tiers import ULTRAFAST, Overflow
from ultrafast.errors import QueueFull, RequestError
from ultrafast.types import GenerateRequest, TokenDelta

if TYPE_CHECKING:
    from ultrafast.engine.engine import Engine
    from ultrafast.engine.sequence import Sequence
    from ultrafast.engine.status import ModelStatus
    from ultrafast.engine.stream import Item

__all__ = ["EngineLoop", "TokenStream"]

_log = logging.getLogger(__name__)
_Outcome = list[tuple[TokenStream, "Item"]]


class EngineLoop:
    """Runs an engine on its own thread; ``submit`` and the streams belong to asyncio.

    Args:
        engine: from here on only the loop's thread may step it; it is closed with the loop.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.admission = Admission(engine.tiers)
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
        """Queue one request; see `submit_all`."""
        (stream,) = await self.submit_all([request], news=news, whole=whole)
        return stream

    async def submit_all(
        self, requests: Seq[GenerateRequest], *, news: asyncio.Event | None = None, whole: bool = False
    ) -> list[TokenStream]:
        """Queue requests, all or none, and return the streams of their tokens.

        Args:
            requests: of one tier and overflow policy; checked here, so that a bad one is refused before anything runs.
            news: event to set when a stream has something; by default one for all of them.
            whole: bring everything as one delta at the end, without a wake-up of the event loop before.

        Raises:
            RequestError: the engine refuses a request (400), their tier is full (429), or the loop is draining (503).
        """
        for request in requests:
            self.engine.check(request)
        news = news or asyncio.Event()
        tier = requests[0].tier
        overflow = None if requests[0].overflow is None else Overflow(requests[0].overflow)
        with self._changed:
            if self._draining:
                raise _shutting_down()
            ticket = self._admit(tier, overflow, len(requests))
            streams = [TokenStream(r, ticket, news, cancel=self._cancel, whole=whole) for r in requests]
            self._arrived.extend(streams)
            self._changed.notify_all()
        if ticket.admitted == ULTRAFAST:
            self.engine.preempt()
        else:
            self.engine.interrupt()
        return streams

    def stats(self) -> dict[str, int]:
        """The engine's counts (running, waiting, free_blocks, num_blocks) as of its last turn."""
        stats = dict(self._stats)
        stats["waiting"] += len(self._arrived)
        return stats

    def snapshot(self) -> ModelStatus:
        """Lanes, cache and requests at this moment. Plain reads: the engine neither wakes nor waits for it."""
        return self.engine.snapshot([stream for stream in self._arrived if stream.sequence is None])

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

    def _admit(self, tier: str, overflow: Overflow | None, count: int) -> Ticket:
        try:
            ticket = self.admission.admit(tier, overflow=overflow, count=count)
        except QueueFull:
            self.engine.meter.refused(tier, count)
            raise
        if ticket.admitted != tier:
            self.engine.meter.downgraded(tier, count)
        return ticket

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
                self._take_up(outcome)
                self._expire(outcome)
                self._step(outcome)
            except Exception:
                _log.exception("an engine step failed")
                self._fail_running(outcome)
            self._stats = self.engine.stats()
            self._deliver(outcome)
        left = [*self._active.values(), *self._arrived]
        for stream in left:
            self._end(stream)
        self._deliver([(stream, _shutting_down()) for stream in left])
        self.engine.close()

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to do; False when the loop closes."""
        with self._changed:
            if not self._active:
                self._changed.notify_all()  # whoever drains
            self._changed.wait_for(lambda: self._closing or self._arrived or self._cancelled or self._active)
            return not self._closing

    def _take_up(self, outcome: _Outcome) -> None:
        """Give the engine what arrived, and take from it what was cancelled."""
        with self._changed:
            arrived, cancelled = self._arrived, self._cancelled
            self._arrived, self._cancelled = [], []
            # Still under the lock: a draining caller must not see a moment with the request in neither place.
            for stream in arrived:
                if stream.cancelled:
                    self._end(stream)
                    self.engine.meter.cancelled(stream.tier)
                else:
                    self._add(stream, outcome)
        for stream in cancelled:
            if stream.sequence in self._active:
                self._drop(stream)
                self.engine.meter.cancelled(stream.tier)
        if arrived or cancelled:
            self._stats = self.engine.stats()  # told before the burst, not after it

    def _add(self, stream: TokenStream, outcome: _Outcome) -> None:
        try:
            stream.sequence = self.engine.add(stream.request, tier=stream.ticket.admitted)
            self._active[stream.sequence] = stream
        except Exception as error:
            self._end(stream)
            if not isinstance(error, RequestError):
                _log.exception("the engine could not take a request")
                error = _engine_failed()
            outcome.append((stream, error))

    def _expire(self, outcome: _Outcome) -> None:
        """End what has waited for a slot, or lasted, as long as it may."""
        now = time.monotonic()
        for sequence, stream in list(self._active.items()):
            if stream.ticket.queued and now >= stream.submitted + self._queue_timeout_s(stream):
                self._drop(stream)
                self.engine.meter.refused(stream.ticket.asked)
                outcome.append((stream, self.admission.waited_in_vain(stream.ticket)))
            elif now >= stream.deadline:
                if sequence.usage.completion_tokens:
                    self._pass_on(stream, self.engine.expire(sequence), outcome)
                else:
                    self._drop(stream)
                    outcome.append((stream, _too_late(stream.request)))

    def _step(self, outcome: _Outcome) -> None:
        if not self._active:
            return
        news = self.engine.step()
        self._tell_who_started(outcome)
        for sequence, item in news:
            stream = self._active[sequence]
            if isinstance(item, RequestError):
                if item.status >= 500:
                    _log.error("a request failed", exc_info=item)
                self._end(stream)
                outcome.append((stream, item))
            else:
                self._pass_on(stream, item, outcome)

    def _tell_who_started(self, outcome: _Outcome) -> None:
        for sequence, stream in self._active.items():
            if stream.ticket.queued and sequence.timings.started:
                stream.ticket = self.admission.started(stream.ticket)
                outcome.append((stream, stream.ticket))

    def _pass_on(self, stream: TokenStream, delta: TokenDelta, outcome: _Outcome) -> None:
        if delta.finish_reason is not None:
            self._end(stream)
        if stream.whole:
            stream.withheld.append(delta)
            if delta.finish_reason is None:
                return
            delta = merge(stream.withheld)
        outcome.append((stream, delta))

    def _fail_running(self, outcome: _Outcome) -> None:
        """After a failed step: fail the requests it may have touched, keep those that had not begun.

        When none had begun, the step failed on taking one up; all fail, or the next step would fail again.
        """
        begun = [stream for sequence, stream in self._active.items() if sequence.timings.started]
        for stream in begun or list(self._active.values()):
            outcome.append((stream, _engine_failed()))
            try:
                self._drop(stream)
            except Exception:
                _log.exception("the engine could not drop a failed request")

    def _drop(self, stream: TokenStream) -> None:
        """End a request that has not finished."""
        self._end(stream)
        assert stream.sequence is not None
        self.engine.cancel(stream.sequence)

    def _end(self, stream: TokenStream) -> None:
        """A request leaves, whatever way: exactly once for each, as it is in ``_arrived`` or in ``_active`` before."""
        sequence = stream.sequence
        started = 0.0
        if sequence is not None:
            del self._active[sequence]
            started = sequence.timings.started
        self.admission.release(stream.ticket, length_s=time.monotonic() - started if started else None)

    def _queue_timeout_s(self, stream: TokenStream) -> float:
        return self.engine.tiers.policies[stream.ticket.admitted].queue_timeout_s

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


def _too_late(request: GenerateRequest) -> RequestError:
    return RequestError(
        f"The deadline of {request.deadline_s:g} s passed before the first token.",
        status=408,
        type="timeout_error",
        code="deadline_exceeded",
        param="deadline_s",
    )


def _shutting_down() -> RequestError:
    return RequestError(
        "The server is shutting down and takes no new requests.",
        status=503,
        type="service_unavailable_error",
        code="server_is_overloaded",
        retry_after=5.0,
    )
