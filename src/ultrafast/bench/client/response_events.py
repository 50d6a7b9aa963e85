"""The events of Responses, over HTTP or a WebSocket, read after their end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ultrafast.bench.client.answer import (
    UNREADABLE,
    Answer,
    Kind,
    OwnMeasures,
    Piece,
    Tokens,
    malformed,
    message_of,
)
from ultrafast.bench.client.call import Outcome, ToolCall
from ultrafast.bench.client.logprobs import chances_of
from ultrafast.bench.client.sse import Read

_DELTAS: dict[str, Kind] = {
    "response.output_text.delta": "answer",
    "response.refusal.delta": "answer",
    "response.reasoning_text.delta": "thought",
    "response.reasoning_summary_text.delta": "thought",
    "response.function_call_arguments.delta": "tool",
    "response.custom_tool_call_input.delta": "tool",
}
_TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


class _CachedDetails(Struct):
    cached_tokens: Tokens | None = None


class _ReasoningDetails(Struct):
    reasoning_tokens: Tokens | None = None


class _Usage(Struct):
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    input_tokens_details: _CachedDetails | None = None
    output_tokens_details: _ReasoningDetails | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Response(Struct):
    id: str | None = None
    model: str | None = None
    service_tier: str | None = None
    incomplete_details: _Incomplete | None = None
    usage: _Usage | None = None
    ultrafast: OwnMeasures | None = None
    error: Any = None


class _Item(Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: Any = None  # of a call of a custom tool


class _Event(Struct):
    type: str
    delta: Any = None  # text in the events that are read; anything in others
    logprobs: msgspec.Raw = msgspec.Raw()
    item_id: str | None = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None
    message: str | None = None
    status: int | None = None


class _Type(Struct):
    type: str = ""
    status: int | None = None


_DECODER = msgspec.json.Decoder(_Event)
_TYPE = msgspec.json.Decoder(_Type)


def end_of(data: bytes) -> Literal["clean", "unclean"] | None:
    """Whether an event is the last of its response on a WebSocket, and how sure that is.

    After an unclean end more may follow: an error during a response, which some servers follow up; or no event at all.
    """
    try:
        event = _TYPE.decode(data)
    except UNREADABLE:
        return "unclean"
    if event.type == "error":
        return "unclean" if event.status is None else "clean"
    return "clean" if event.type in _TERMINAL else None


def read_response(events: Iterable[Read], answer: Answer) -> Iterator[None]:
    """Fill in the answer in a stream of Responses; comes back after every event. Nothing in the events raises."""
    for at_s, data in events:
        if data == b"[DONE]":  # not OpenAI's, but some servers end every stream so
            break
        try:
            event = _DECODER.decode(data)
            _add(answer, at_s, event)
        except UNREADABLE as error:
            answer.failure = answer.failure or malformed(data, error)
            break
        yield
        if answer.ended_s is not None:
            break


def _add(answer: Answer, at_s: float, event: _Event) -> None:
    if event.response is not None:
        _add_response(answer, event.response)
    if event.type in _DELTAS:
        _add_delta(answer, at_s, event)
    elif event.item is not None and event.item.type in ("function_call", "custom_tool_call"):
        _add_item(answer, at_s, event.type, event.item)
    elif event.type == "error":
        answer.failure = Outcome.ERROR, message_of(event.error or event.message or "an error without a message")
        answer.status = event.status
    elif event.type == "response.failed" and answer.failure is None:
        error = event.response.error if event.response else None
        answer.failure = Outcome.ERROR, message_of(error or "the response failed, without saying why")
    if event.type in _TERMINAL:
        answer.ended_s = at_s
        answer.finish_reason = _finish_reason(answer, event)


def _add_delta(answer: Answer, at_s: float, event: _Event) -> None:
    text = msgspec.convert(event.delta, str)
    kind = _DELTAS[event.type]
    answer.logprobs += chances_of(event.logprobs)
    if text:
        answer.pieces.append(Piece(at_s, kind, text))
    if kind == "tool":
        answer.add_call(event.item_id or "", arguments=text)


def _add_item(answer: Answer, at_s: float, type: str, item: _Item) -> None:
    """A call begins with its name, and its last event repeats it as a whole."""
    key = item.id or item.call_id or ""
    name = item.name or ""
    if key not in answer.calls and name:
        answer.pieces.append(Piece(at_s, "tool", name))
    if key not in answer.calls:
        answer.add_call(key, id=item.call_id or "", name=name)
    if type == "response.output_item.done":
        whole = item.arguments if item.arguments is not None else item.input
        begun = answer.calls[key]
        answer.calls[key] = ToolCall(begun.id, name, whole if isinstance(whole, str) else begun.arguments)


def _add_response(answer: Answer, response: _Response) -> None:
    answer.id = response.id or answer.id
    answer.model = response.model or answer.model
    answer.tier = response.service_tier or answer.tier
    if response.ultrafast:
        answer.server = response.ultrafast.times()
    if usage := response.usage:
        given, made = usage.input_tokens_details, usage.output_tokens_details
        answer.prompt_tokens, answer.output_tokens = usage.input_tokens, usage.output_tokens
        answer.cached_tokens = given.cached_tokens if given else None
        answer.reasoning_tokens = made.reasoning_tokens if made else None


def _finish_reason(answer: Answer, event: _Event) -> str | None:
    """In the words of Chat Completions."""
    if event.type == "response.completed":
        return "tool_calls" if answer.calls else "stop"
    if event.type == "response.failed":
        return None
    details = event.response.incomplete_details if event.response else None
    reason = details.reason if details else None
    return "length" if reason == "max_output_tokens" else reason
