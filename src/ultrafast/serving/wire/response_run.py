"""One response in the making: its object, its events and its end, whatever they are sent over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import HTTPConnection

from ultrafast.engine.loop import EngineLoop, TokenStream
from ultrafast.engine.stream import StreamCancelled, flushes
from ultrafast.errors import RequestError
from ultrafast.serving.errors import error_body
from ultrafast.serving.generate import Job, Running
from ultrafast.serving.isolation import owner_of
from ultrafast.serving.store import ResponseStore
from ultrafast.serving.wire import sse
from ultrafast.serving.wire.response_events import Event, EventMaker, OutputWriter
from ultrafast.serving.wire.response_items import Item, answer_to, is_answerable, new_id
from ultrafast.serving.wire.response_object import echo, usage_of
from ultrafast.serving.wire.responses_request import Asked
from ultrafast.serving.wire.usage import measured
from ultrafast.types import AnswerEnd, Usage


@dataclass(frozen=True, slots=True)
class Turn:
    """What a later request continues from.

    Attributes:
        id: of the response.
        items: the whole conversation up to and including its output, in complete form; instructions are not inherited.
    """

    id: str
    items: Sequence[Item]


class ResponseRun:
    """One response in the making.

    Attributes:
        id: of the response.
        owner: who may see it.
        loop: of the model.
        running: what the engine does for it; None for a warm-up that needs or gets nothing.
        turn: what a later request continues from; None before the end, and for a failure.
        ended: its terminal event was made, and it was stored if it is to be.
    """

    def __init__(
        self, connection: HTTPConnection, loop: EngineLoop, asked: Asked, running: Running | None, *, whole: bool
    ) -> None:
        self.id = new_id("resp")
        self.owner = owner_of(connection)
        self.loop = loop
        self.running = running
        self.turn: Turn | None = None
        self.ended = False
        self._asked = asked
        self._whole = whole
        self._store: ResponseStore | None = connection.app.state.store if asked.ask.store is not False else None
        self._event = EventMaker()
        self._writer = OutputWriter(self._event, loop.engine.tokenizer, asked.offered.call_of)
        self._status = "in_progress"
        self._end: dict[str, Any] = {}  # the fields that differ at the end
        self._base = {
            "id": self.id,
            "object": "response",
            "created_at": int(time.time()),
            "model": loop.engine.model_id,
            "store": self._store is not None,
        } | echo(asked)

    @property
    def response(self) -> dict[str, Any]:
        """The ``response`` object as it stands."""
        tier = self.running.tier if self.running else self._asked.tier
        state = {"status": self._status, "service_tier": tier, "output": list(self._writer.items)}
        return self._base | state | self._end

    @property
    def stored(self) -> bool:
        """Whether it can be retrieved."""
        return self._store is not None

    @property
    def streams(self) -> list[TokenStream]:
        """What to cancel when nobody is left to read it."""
        return self.running.streams if self.running else []

    @property
    def headers(self) -> dict[str, str]:
        """Of an HTTP answer."""
        return self.running.headers if self.running else {}

    async def admitted(self) -> None:
        """Wait until the response may begin. Raises what `Running.admitted` raises."""
        if self.running is None:
            return
        try:
            await self.running.admitted()
        except StreamCancelled:
            if self._status != "cancelled":
                raise

    async def events(self) -> AsyncIterator[list[Event]]:
        """The events, a batch a write; the last one of the last batch is terminal.

        A terminal event is sent after the response was stored, so that who has seen it can continue from it.

        Raises:
            RequestError: the response failed, and its events were wanted as a whole.
            StreamCancelled: somebody cancelled its streams, other than by `cancel`.
        """
        begun = self.response | {"status": "in_progress"}  # also if it was cancelled while it waited for its slot
        yield [self._event("response.created", response=begun), self._event("response.in_progress", response=begun)]
        error: RequestError | None = None
        closing: list[Event] = []
        try:
            async for batch, end in self._batches():
                if end is not None:
                    closing = batch + self._finish(end)
                elif batch:
                    yield batch
        except StreamCancelled:
            if self._status != "cancelled":
                raise
            closing = self._writer.close("incomplete")
        except RequestError as failure:
            if self._whole:
                raise
            error = failure
        if error is None:
            self.turn = Turn(self.id, [*self._asked.items, *self._writer.items])
        else:
            closing = self._fail(error)
        await self._keep()
        self.ended = True
        yield [*closing, self._terminal()]

    def failed(self, error: RequestError) -> list[Event]:
        """The last events of a response that failed for a reason outside of it."""
        self.ended = True
        return [*self._fail(error), self._terminal()]

    def continuations(self) -> list[Job]:
        """What two turns after this one ask of the engine that differ in all that their clients choose.

        They bring the result of the first call of the output, or the user's next words where there is none.

        Raises:
            RequestError: see `Asked.job`.
        """
        assert self.turn is not None
        call = next((item for item in self._writer.items if is_answerable(item)), None)
        return [self._asked.job([*self.turn.items, answer_to(call, text)]) for text in ("a", "1")]

    def cancel(self) -> bool:
        """End it now, as ``cancelled``; False if it has ended already."""
        if all(stream.ended for stream in self.streams):
            return False
        self._status = "cancelled"
        for stream in self.streams:
            stream.cancel()
        return True

    async def _batches(self) -> AsyncIterator[tuple[list[Event], AnswerEnd | None]]:
        """The events of the output, and its end with the last ones."""
        if self.running is None:
            yield [], AnswerEnd("stop")
            return
        (parser,) = self.running.parsers
        async for deltas in flushes(self.running.streams, self.running.news, interval_s=sse.FLUSH_S):
            for _, delta in deltas:
                pieces = parser.push(delta)
                if not self._asked.ask.warms_up:
                    yield self._writer.push(pieces)
                elif delta.finish_reason is not None:
                    yield [], AnswerEnd("stop")

    def _finish(self, end: AnswerEnd) -> list[Event]:
        """The answer has ended by itself."""
        if end.reason == "length":
            self._status = "incomplete"
            self._end = {"incomplete_details": {"reason": "max_output_tokens"}}
        else:
            self._status = "completed"
            self._end = {"completed_at": int(time.time())}
        self._end["usage"] = self._usage(end)
        if self.running is not None:
            self._end["ultrafast"] = measured(self.running.streams)
        return [] if self._asked.ask.warms_up else self._writer.close_all(self._status)

    def _fail(self, error: RequestError) -> list[Event]:
        """The error, which precedes the terminal event: some clients heed only the one, some only the other."""
        self._status = "failed"
        self._end = {"error": {"code": error.code or "server_error", "message": error.message}}
        return [*self._writer.close("incomplete"), self._event("error", error=error_body(error))]

    def _usage(self, end: AnswerEnd) -> dict[str, Any]:
        usage = self.running.streams[0].usage if self.running else Usage(0, 0)
        if self._asked.ask.warms_up:
            usage = replace(usage, completion_tokens=0)  # one is computed, and not given
        return usage_of(usage, reasoning_tokens=end.reasoning_tokens)

    async def _keep(self) -> None:
        if self._store is None:
            return
        asked = self._asked
        parent = asked.ask.previous_response_id
        if not await asyncio.to_thread(
            self._store.put, self.response, owner=self.owner, parent=parent, history=asked.history, new=asked.new
        ):
            self._store = None
            self._base["store"] = False

    def _terminal(self) -> Event:
        name = "incomplete" if self._status == "cancelled" else self._status  # no event is named cancelled
        return self._event(f"response.{name}", response=self.response)
