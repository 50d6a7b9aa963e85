"""The tokens of one request on their way from the engine thread to an asyncio reader."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ultrafast.engine.admission import Ticket
from ultrafast.errors import RequestError
from ultrafast.types import GenerateRequest, Timings, TokenDelta, Usage

if TYPE_CHECKING:
    from ultrafast.engine.sequence import Sequence


class StreamCancelled(Exception):  # not a fault: somebody called cancel()
    """The stream was cancelled, so nothing more will come."""


Item = TokenDelta | Ticket | RequestError
"""What a stream is told: new tokens, that its waiting for a slot is over, or that it failed."""


@dataclass(frozen=True, slots=True)
class RequestTiers:
    """The tiers of one request.

    Attributes:
        asked: what the client asked for.
        admitted: what the door let it into; the answer names this one.
        served: what it ran in: the admitted one, or None as long as it has no slot.
        billed: the served one, or None for a request that failed without a token.
    """

    asked: str
    admitted: str
    served: str | None
    billed: str | None


class TokenStream:
    """An async iterator of `TokenDelta`; what its reader has not taken yet is merged into one delta.

    Memory is bounded by the request's ``max_tokens``, however slow the reader. Everything but ``sequence``,
    ``ticket`` and ``withheld`` belongs to the event loop that submitted the request.
    """

    def __init__(
        self,
        request: GenerateRequest,
        ticket: Ticket,
        news: asyncio.Event,
        *,
        cancel: Callable[[TokenStream], None],
        whole: bool = False,
    ) -> None:
        self.request = request
        self.ticket = ticket  # changed by the engine thread when the waiting for a slot is over
        self.submitted = time.monotonic()
        self.deadline = math.inf if request.deadline_s is None else self.submitted + request.deadline_s
        self.whole = whole  # all comes as one delta at the end
        self.news = news  # set when there is something to take
        self.event_loop = asyncio.get_running_loop()
        self.sequence: Sequence | None = None  # the engine's side; set by the engine thread
        self.withheld: list[TokenDelta] = []  # of a whole stream, until its end; the engine thread's
        self.ended = False  # the last delta, an error or a cancel has come; there may still be text to take
        self.cancelled = False
        self._pending: list[TokenDelta] = []
        self._error: RequestError | None = None
        self._cancel = cancel

    @property
    def usage(self) -> Usage:
        """Token counts; final once the stream has ended."""
        return self.sequence.usage if self.sequence else Usage(len(self.request.prompt_ids), 0)

    @property
    def timings(self) -> Timings:
        """Moments of this request so far."""
        return self.sequence.timings if self.sequence else Timings()

    @property
    def tier(self) -> str:
        """The tier that serves the request, or will."""
        return self.ticket.admitted

    @property
    def tiers(self) -> RequestTiers:
        """The tiers of this request; final once the stream has ended."""
        served = self.ticket.admitted if self.timings.started else None
        refused = self._error is not None and not self.usage.completion_tokens
        return RequestTiers(self.ticket.asked, self.ticket.admitted, served, None if refused else served)

    @property
    def exhausted(self) -> bool:
        """Ended well, and all of it taken."""
        return self.ended and not (self._pending or self._error or self.cancelled)

    async def admitted(self) -> None:
        """Wait until the request has a slot, if it was let in to wait for one.

        Raises:
            RequestError: there was none in time (429, or 408 for the request's own deadline), or the request failed.
            StreamCancelled: `cancel` was called.
        """
        while self.ticket.queued and not self.ended:
            self.news.clear()
            await self.news.wait()
        if self.cancelled:
            raise StreamCancelled
        if self._error is not None and not self._pending:
            raise self._error

    def cancel(self) -> None:
        """End the request now and free its slot; nothing if it has ended already."""
        if self.ended:
            return
        self.ended = self.cancelled = True
        self._pending.clear()
        self.news.set()
        self._cancel(self)

    def receive(self, item: Item) -> None:
        """Take in what the engine thread has to tell; called on the event loop."""
        if self.ended:
            return
        if isinstance(item, RequestError):
            self._error = item
            self.ended = True
        elif isinstance(item, TokenDelta):
            self._pending.append(item)
            self.ended = item.finish_reason is not None
        self.news.set()

    def take(self) -> TokenDelta | None:
        """Everything new as one delta, or None.

        Raises:
            RequestError: the request failed, and all text before that was taken.
            StreamCancelled: `cancel` was called.
        """
        if self._pending:
            pending, self._pending = self._pending, []
            if self._error is not None:
                self.news.set()  # the next take raises it
            return merge(pending)
        if self.cancelled:
            raise StreamCancelled
        if self._error is not None:
            raise self._error
        return None

    async def result(self) -> TokenDelta:
        """Wait for the end, then return all of it as one delta. Raises what `take` raises."""
        parts = [delta async for delta in self]
        return merge(parts)

    async def __aiter__(self) -> AsyncIterator[TokenDelta]:
        while True:
            if delta := self.take():
                yield delta
            elif self.ended:
                return
            else:
                self.news.clear()
                await self.news.wait()


def merge(deltas: list[TokenDelta]) -> TokenDelta:
    """Adjacent deltas of one sequence as one."""
    if len(deltas) == 1:
        return deltas[0]
    with_logprobs = deltas[0].logprobs is not None
    return TokenDelta(
        text="".join(d.text for d in deltas),
        token_ids=[token for d in deltas for token in d.token_ids],
        logprobs=[entry for d in deltas for entry in d.logprobs or ()] if with_logprobs else None,
        finish_reason=deltas[-1].finish_reason,
        stop=deltas[-1].stop,
        prompt_logprobs=deltas[0].prompt_logprobs,
    )


async def flushes(
    streams: list[TokenStream], news: asyncio.Event, *, interval_s: float
) -> AsyncIterator[list[tuple[int, TokenDelta]]]:
    """What is new in any of the streams, as ``(index, delta)``; at most one batch per interval.

    The first tokens and the ends of streams are passed on at once; what arrives between two batches is merged, so
    that many tokens share one write.

    Args:
        streams: all submitted with this ``news`` event.
        interval_s: shortest time between two batches.

    Raises:
        RequestError: a stream failed.
        StreamCancelled: a stream was cancelled.
    """
    clock = asyncio.get_running_loop().time
    live = dict(enumerate(streams))
    next_flush = 0.0
    while live:
        await news.wait()
        while not any(s.ended for s in live.values()) and (rest := next_flush - clock()) > 0:
            news.clear()
            try:
                async with asyncio.timeout(rest):
                    await news.wait()
            except TimeoutError:
                break
        news.clear()
        batch = [(index, delta) for index, stream in live.items() if (delta := stream.take())]
        live = {index: stream for index, stream in live.items() if not stream.exhausted}
        if batch:
            next_flush = clock() + interval_s
            yield batch
