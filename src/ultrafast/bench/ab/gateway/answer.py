"""What an answer says of itself, read once it is over: tokens, the tier that served, when the first token came.

One reader for Chat Completions, Completions, Responses (HTTP and WebSocket) and Anthropic's Messages: their fields have
names of their own, and no reader of one trips over another's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ultrafast.bench.client.call import Call, Outcome
from ultrafast.bench.client.sse import events_of

Piece = tuple[float, bytes]
"""Bytes of a body, and when they were read, in seconds on the run's clock."""

_ENDS = ("response.completed", "response.incomplete", "message_stop")  # no sets: a type may be anything
_FAILS = ("error", "response.failed")
_LONGEST_ERROR = 300


def read_body(call: Call, pieces: Sequence[Piece], content_type: str) -> None:
    """Fills in the call from a whole body; a body that cannot be read says nothing."""
    if "text/event-stream" not in content_type:
        whole = _decode(b"".join(data for _, data in pieces))
        read_event(call, whole, None)
        call.finish_reason = call.finish_reason or _finish_reason(whole)
        return
    ended = False
    for at_s, data in events_of(pieces, is_whole=True):
        event = None if data == b"[DONE]" else _decode(data)
        ended = ended or data == b"[DONE]" or (event or {}).get("type") in _ENDS
        read_event(call, event, at_s)
    if call.is_ok and not ended and call.finish_reason is None:
        call.outcome, call.error = Outcome.BROKEN, "the stream ended without an end"


def read_event(call: Call, event: Mapping[str, Any] | None, at_s: float | None) -> bool:
    """Fills in the call from one event of a stream (or, without a time, from a whole answer).

    Returns:
        whether the answer ends with it.
    """
    if event is None:
        return False
    kind = event.get("type")
    inner = _mapping(event.get("response")) or _mapping(event.get("message")) or event
    if at_s is not None and _has_token(event):
        call.first_token_s = at_s if call.first_token_s is None else call.first_token_s
        call.last_token_s = at_s
    for said in (_mapping(inner.get("usage")), _mapping(event.get("usage"))):
        _read_usage(call, said)
        call.tier_served = _text(said.get("ultrafast_tier")) or call.tier_served
    call.tier_served = _text(inner.get("service_tier")) or call.tier_served
    call.model_served = _text(inner.get("model")) or call.model_served
    call.response_id = _text(inner.get("id")) or call.response_id
    call.finish_reason = _finish_reason(event) or call.finish_reason
    problem = event.get("error") or inner.get("error")
    if (kind in _FAILS or problem) and call.is_ok:
        call.outcome, call.error = Outcome.ERROR, _message(problem or event)
    elif problem and call.error is None:
        call.error = _message(problem)
    return kind in _ENDS or kind in _FAILS


def text_of(stream: bytes) -> str:
    """The text in a stream of Chat Completions, Completions or Responses; tool calls and thoughts are none."""
    parts: list[str] = []
    for _, data in events_of([(0.0, stream)], is_whole=True):
        event = _decode(data) or {}
        if event.get("type") == "response.output_text.delta":
            parts.append(_text(event.get("delta")) or "")
        for choice in _choices(event):
            parts.append(_text(_mapping(choice.get("delta")).get("content")) or _text(choice.get("text")) or "")
    return "".join(parts)


def _has_token(event: Mapping[str, Any]) -> bool:
    kind = event.get("type")
    if isinstance(kind, str):
        return kind.endswith(".delta") or kind == "content_block_delta"
    for choice in _choices(event):
        delta = _mapping(choice.get("delta"))
        if choice.get("text") or any(value for name, value in delta.items() if name != "role"):
            return True
    return False


def _read_usage(call: Call, usage: Mapping[str, Any]) -> None:
    inputs = _mapping(usage.get("prompt_tokens_details")) or _mapping(usage.get("input_tokens_details"))
    outputs = _mapping(usage.get("completion_tokens_details")) or _mapping(usage.get("output_tokens_details"))
    prompt = _count(usage, "prompt_tokens", "input_tokens")
    cached = _count(inputs, "cached_tokens")
    beside = _count(usage, "cache_read_input_tokens")
    if beside is not None and prompt is not None:  # Messages counts these beside the others
        prompt, cached = prompt + beside + (_count(usage, "cache_creation_input_tokens") or 0), beside
    call.prompt_tokens = call.prompt_tokens if prompt is None else prompt
    call.cached_tokens = call.cached_tokens if cached is None else cached
    tokens = _count(usage, "completion_tokens", "output_tokens")
    call.output_tokens = call.output_tokens if tokens is None else tokens
    thoughts = _count(outputs, "reasoning_tokens")
    call.reasoning_tokens = call.reasoning_tokens if thoughts is None else thoughts


def _finish_reason(event: Mapping[str, Any] | None) -> str | None:
    if event is None:
        return None
    for choice in _choices(event):
        if reason := _text(choice.get("finish_reason")):
            return reason
    inner = _mapping(event.get("response")) or _mapping(event.get("delta")) or event
    status = _text(inner.get("status"))
    return _text(inner.get("stop_reason")) or (status if status in ("completed", "incomplete") else None)


def _choices(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    choices = event.get("choices")
    return [_mapping(choice) for choice in choices] if isinstance(choices, list) else []


def _message(problem: Any) -> str:
    said = _text(_mapping(problem).get("message")) or _text(_mapping(_mapping(problem).get("error")).get("message"))
    return (said or str(problem))[:_LONGEST_ERROR]


def _decode(data: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(fields: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
