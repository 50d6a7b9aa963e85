"""From what was recorded of a request to its `Call`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ultrafast.bench.client.answer import UNREADABLE, Answer, bounded, message_of
from ultrafast.bench.client.call import Call, Outcome
from ultrafast.bench.client.chat_events import read_chat
from ultrafast.bench.client.endpoint import Api
from ultrafast.bench.client.recording import Recording
from ultrafast.bench.client.response_events import read_response
from ultrafast.bench.client.sse import events_of
from ultrafast.bench.client.tokens import Count, chunks_of


def fill(call: Call, recording: Recording, api: Api, count: Count | None) -> Iterator[None]:
    """Complete the record of a call; comes back after every event, since to read a long answer at one go would delay
    the reading of those that still come."""
    call.sent_s, call.status, call.done_s = recording.sent_s, recording.status, recording.ended_s
    if recording.reads:
        call.first_byte_s = recording.reads[0][0]
    if call.status is not None and not 200 <= call.status < 300:
        call.outcome, call.error = recording.fault or (outcome_of(call.status), _refusal(recording))
        return
    answer = Answer()
    yield from _read(recording, api, answer)
    _copy(call, answer)
    call.chunks, call.token_source = chunks_of(answer, count)
    if call.chunks:
        call.first_token_s, call.last_token_s = call.chunks[0].at_s, call.chunks[-1].at_s
        call.first_answer_s = next((chunk.at_s for chunk in call.chunks if chunk.kind != "thought"), None)
    failure = _failure(answer, recording)
    if failure is not None:
        call.outcome, call.error = failure
        call.status = answer.status or call.status
    elif answer.ended_s is not None:
        call.done_s = answer.ended_s  # the server may take its time to close the stream


def outcome_of(status: int) -> Outcome:
    """How a call ended that was refused with a status."""
    return Outcome.REFUSED if status in (429, 503) else Outcome.ERROR


def _read(recording: Recording, api: Api, answer: Answer) -> Iterator[None]:
    if api == "socket":
        return read_response(recording.reads, answer)
    events = events_of(recording.reads, is_whole=recording.fault is None)
    return read_response(events, answer) if api == "responses" else read_chat(events, answer)


def _copy(call: Call, answer: Answer) -> None:
    call.finish_reason = answer.finish_reason
    call.tier_served, call.model_served = answer.tier, answer.model
    call.response_id, call.fingerprint = answer.id, answer.fingerprint
    call.prompt_tokens, call.cached_tokens = answer.prompt_tokens, answer.cached_tokens
    call.output_tokens, call.reasoning_tokens = answer.output_tokens, answer.reasoning_tokens
    call.server = answer.server
    call.text, call.thoughts = answer.text("answer"), answer.text("thought")
    call.tool_calls, call.logprobs = list(answer.calls.values()), answer.logprobs


def _failure(answer: Answer, recording: Recording) -> tuple[Outcome, str] | None:
    """Why this is no whole answer; what the server says of it comes before what we saw."""
    if answer.failure is not None and answer.failure[0] is Outcome.ERROR:
        outcome, message = answer.failure
        return (outcome if answer.status is None else outcome_of(answer.status)), message
    if answer.ended_s is not None:
        return None
    if recording.fault is not None:
        return recording.fault
    if answer.failure is not None:
        return answer.failure
    return Outcome.BROKEN, _unended(recording)


def _unended(recording: Recording) -> str:
    body = recording.body
    if not body:
        return "the stream has no event"
    if b"data:" not in body:
        shown = bounded(body[:200].decode(errors="replace"))
        return f"the answer is no event stream but {recording.content_type or 'of no stated type'}: {shown}"
    return "the stream stopped without an end"


def _refusal(recording: Recording) -> str:
    """What a server says with a status that is not 2xx."""
    body = recording.body
    if recording.location is not None and 300 <= (recording.status or 0) < 400:
        return bounded(f"status {recording.status}: the server wants to be asked at {recording.location}")
    try:
        return message_of(msgspec.json.decode(body)) if body else f"status {recording.status} without a word"
    except UNREADABLE:
        return bounded(body.decode(errors="replace"))
