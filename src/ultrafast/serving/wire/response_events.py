"""The output of a response as it comes: pieces of an answer in, output items and their events out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ultrafast.serving.wire.logprobs import Vocabulary, logprob_entries
from ultrafast.serving.wire.response_items import Item, new_id
from ultrafast.types import AnswerEnd, CallArguments, CallBegin, CallEnd, Piece, Text, Thought, TokenLogprob

Event = dict[str, Any]


class EventMaker:
    """Makes the events of one response, and numbers them."""

    def __init__(self) -> None:
        self._next_number = 0

    def __call__(self, type: str, **fields: Any) -> Event:
        """The next event."""
        number = self._next_number
        self._next_number += 1
        return {"type": type, "sequence_number": number, **fields}


class OutputWriter:
    """Writes output items, one after the other.

    Args:
        event: makes the events.
        vocabulary: shows the tokens of log-probabilities.
        call_of: the fields that name a function, from the name that the model knows.
    """

    def __init__(self, event: EventMaker, vocabulary: Vocabulary, call_of: Callable[[str], dict[str, str]]) -> None:
        self._event = event
        self._vocabulary = vocabulary
        self._call_of = call_of
        self._done: list[Item] = []
        self._open: _TextItem | _CallItem | None = None

    @property
    def items(self) -> list[Item]:
        """The items so far; the last one may be in progress."""
        return self._done if self._open is None else [*self._done, self._open.item("in_progress")]

    def push(self, pieces: Iterable[Piece]) -> tuple[list[Event], AnswerEnd | None]:
        """The events of the pieces, and the end if it is among them; `close` is then to follow."""
        events: list[Event] = []
        for piece in pieces:
            match piece:
                case Text(text, logprobs):
                    events += self._text(_MESSAGE, text, logprobs)
                case Thought(text):
                    events += self._text(_REASONING, text, None)
                case CallBegin(name):
                    events += self.close("completed")
                    events += self._begin(_CallItem(self._event, len(self._done), self._call_of(name)))
                case CallArguments(text):
                    assert isinstance(self._open, _CallItem)
                    events += self._open.add(text)
                case CallEnd():
                    events += self.close("completed")
                case AnswerEnd():
                    return events, piece
        return events, None

    def close(self, status: str) -> list[Event]:
        """End the item that is open, if one is."""
        if self._open is None:
            return []
        closing, self._open = self._open, None
        self._done = [*self._done, closing.item(status)]
        return closing.end(status)

    def close_all(self, status: str) -> list[Event]:
        """End the output; an answer without any item gets an empty message, which is what it said."""
        events = [] if self._done or self._open else self._text(_MESSAGE, "", None)
        return events + self.close(status)

    def _text(self, form: _Form, text: str, logprobs: Sequence[TokenLogprob] | None) -> list[Event]:
        events: list[Event] = []
        if not (isinstance(self._open, _TextItem) and self._open.form is form):
            events += self.close("completed")
            events += self._begin(_TextItem(self._event, len(self._done), form))
        assert isinstance(self._open, _TextItem)
        if text or logprobs:
            events += self._open.add(text, logprob_entries(self._vocabulary, logprobs))
        return events

    def _begin(self, item: _TextItem | _CallItem) -> list[Event]:
        self._open = item
        return item.begin()


@dataclass(frozen=True, slots=True)
class _Form:
    """How an item that is one text is written.

    Attributes:
        prefix: of its id.
        fields: that tell what it is.
        part: its content without the text.
        event: what its events begin with.
        logprobs: whether it has them.
    """

    prefix: str
    fields: Item
    part: Item
    event: str
    logprobs: bool


_MESSAGE = _Form(
    "msg",
    {"type": "message", "role": "assistant"},
    {"type": "output_text", "annotations": []},
    "response.output_text",
    True,
)
_REASONING = _Form(
    "rs", {"type": "reasoning", "summary": []}, {"type": "reasoning_text"}, "response.reasoning_text", False
)


class _TextItem:
    """A message or a reasoning item."""

    def __init__(self, event: EventMaker, index: int, form: _Form) -> None:
        self.form = form
        self._event = event
        self._index = index
        self._id = new_id(form.prefix)
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []

    def item(self, status: str) -> Item:
        """As it stands."""
        return {"id": self._id, **self.form.fields, "status": status, "content": [self._part()]}

    def begin(self) -> list[Event]:
        item = {**self.item("in_progress"), "content": []}
        return [
            self._event("response.output_item.added", output_index=self._index, item=item),
            self._part_event("response.content_part.added", part=self._part()),
        ]

    def add(self, text: str, logprobs: list[dict[str, Any]]) -> list[Event]:
        self._texts.append(text)
        self._logprobs += logprobs
        return [self._part_event(f"{self.form.event}.delta", delta=text, **self._with(logprobs))]

    def end(self, status: str) -> list[Event]:
        part = self._part()
        return [
            self._part_event(f"{self.form.event}.done", text=part["text"], **self._with(self._logprobs)),
            self._part_event("response.content_part.done", part=part),
            self._event("response.output_item.done", output_index=self._index, item=self.item(status)),
        ]

    def _part(self) -> Item:
        return {**self.form.part, "text": "".join(self._texts), **self._with(list(self._logprobs))}

    def _with(self, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        return {"logprobs": logprobs} if self.form.logprobs else {}

    def _part_event(self, type: str, **fields: Any) -> Event:
        return self._event(type, item_id=self._id, output_index=self._index, content_index=0, **fields)


class _CallItem:
    """A call of a function."""

    def __init__(self, event: EventMaker, index: int, names: dict[str, str]) -> None:
        self._event = event
        self._index = index
        self._fields = {"id": new_id("fc"), "type": "function_call", "call_id": new_id("call"), **names}
        self._arguments: list[str] = []

    def item(self, status: str) -> Item:
        """As it stands."""
        return {**self._fields, "arguments": "".join(self._arguments), "status": status}

    def begin(self) -> list[Event]:
        return [self._event("response.output_item.added", output_index=self._index, item=self.item("in_progress"))]

    def add(self, text: str) -> list[Event]:
        self._arguments.append(text)
        return [self._call_event("response.function_call_arguments.delta", delta=text)]

    def end(self, status: str) -> list[Event]:
        item = self.item(status)
        events = []
        if status == "completed":  # or its arguments are cut, and to say that they are done would have them parsed
            arguments, name = item["arguments"], item["name"]
            events.append(self._call_event("response.function_call_arguments.done", name=name, arguments=arguments))
        return [*events, self._event("response.output_item.done", output_index=self._index, item=item)]

    def _call_event(self, type: str, **fields: Any) -> Event:
        return self._event(type, item_id=self._fields["id"], output_index=self._index, **fields)
