"""The streams of Chat Completions and of Completions, read after their end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

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
    seconds,
)
from ultrafast.bench.client.call import Outcome, ServerTimes
from ultrafast.bench.client.logprobs import chances_of
from ultrafast.bench.client.sse import Read


class _Function(Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None  # DeepSeek's word, ours, llama.cpp's
    reasoning: str | None = None  # vLLM's and OpenRouter's
    tool_calls: list[_CallDelta] | None = None
    function_call: _Function | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    text: str | None = None  # of Completions
    finish_reason: str | None = None
    logprobs: msgspec.Raw = msgspec.Raw()


class _PromptDetails(Struct):
    cached_tokens: Tokens | None = None


class _OutputDetails(Struct):
    reasoning_tokens: Tokens | None = None


class _Usage(Struct):
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Timings(Struct):
    """llama.cpp's own measurements."""

    prompt_ms: float | None = None
    predicted_ms: float | None = None
    predicted_n: Tokens | None = None
    draft_n: Tokens | None = None
    draft_n_accepted: Tokens | None = None


class _ChatChunk(Struct):
    id: str | None = None
    model: str | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    ultrafast: OwnMeasures | None = None
    timings: _Timings | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_ChatChunk)


def read_chat(events: Iterable[Read], answer: Answer) -> Iterator[None]:
    """Fill in the answer in a stream of Chat Completions or Completions; comes back after every event.

    Nothing in the events raises.
    """
    is_done, at_s = False, 0.0
    for at_s, data in events:
        is_done = data == b"[DONE]"
        if is_done:
            break
        try:
            chunk = _DECODER.decode(data)
        except UNREADABLE as error:
            answer.failure = malformed(data, error)
            return
        if chunk.error:
            answer.failure = Outcome.ERROR, message_of(chunk.error)
            return
        _add(answer, at_s, chunk)
        yield
    if answer.finish_reason is not None or (is_done and answer.pieces):  # some servers send only one of the two
        answer.ended_s = at_s


def _add(answer: Answer, at_s: float, chunk: _ChatChunk) -> None:
    answer.id = chunk.id or answer.id
    answer.model = chunk.model or answer.model
    answer.tier = chunk.service_tier or answer.tier
    answer.fingerprint = chunk.system_fingerprint or answer.fingerprint
    counted = _add_usage(answer, chunk)
    for choice in chunk.choices or ():
        answer.finish_reason = choice.finish_reason or answer.finish_reason
        answer.logprobs += chances_of(choice.logprobs)
        for kind, text in _texts(choice):
            answer.pieces.append(Piece(at_s, kind, text, counted))
        for call in _calls(choice):
            _add_call(answer, call)


def _texts(choice: _Choice) -> Iterator[tuple[Kind, str]]:
    """What a choice adds, by kind; the empty texts of opening and closing chunks are nothing."""
    delta = choice.delta or _Delta()
    if thought := delta.reasoning_content or delta.reasoning:
        yield "thought", thought
    if text := choice.text or delta.content or delta.refusal:
        yield "answer", text
    functions = [call.function for call in _calls(choice) if call.function]
    if called := "".join((function.name or "") + (function.arguments or "") for function in functions):
        yield "tool", called


def _calls(choice: _Choice) -> list[_CallDelta]:
    delta = choice.delta or _Delta()
    if delta.function_call:  # as calls were before there were tools
        return [_CallDelta(0, None, delta.function_call)]
    return delta.tool_calls or []


def _add_call(answer: Answer, call: _CallDelta) -> None:
    """Calls go by their index; where a server leaves it out, each id begins one."""
    key: str | int
    if call.index is not None:
        key = call.index
    elif call.id or not answer.calls:
        key = call.id or 0
    else:
        key = next(reversed(answer.calls))
    function = call.function or _Function()
    answer.add_call(key, id=call.id or "", name=function.name or "", arguments=function.arguments or "")


def _add_usage(answer: Answer, chunk: _ChatChunk) -> int | None:
    """Take in what a chunk says of tokens and times; returns its count of output tokens so far."""
    if chunk.ultrafast:
        answer.server = chunk.ultrafast.times()
    elif times := chunk.timings:
        answer.server = ServerTimes(
            None, seconds(times.prompt_ms), seconds(times.predicted_ms), times.draft_n, times.draft_n_accepted
        )
    if usage := chunk.usage:
        prompt, output = usage.prompt_tokens_details, usage.completion_tokens_details
        answer.prompt_tokens = _later(usage.prompt_tokens, answer.prompt_tokens)
        answer.output_tokens = _later(usage.completion_tokens, answer.output_tokens)
        answer.cached_tokens = _later(prompt.cached_tokens if prompt else None, answer.cached_tokens)
        answer.reasoning_tokens = _later(output.reasoning_tokens if output else None, answer.reasoning_tokens)
        if usage.completion_tokens is not None:
            return usage.completion_tokens
    return chunk.timings.predicted_n if chunk.timings else None


def _later(new: int | None, old: int | None) -> int | None:
    return old if new is None else new
