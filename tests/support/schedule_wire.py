"""How the reference endpoint writes the steps of a schedule, in each API's events."""

from __future__ import annotations

from typing import Any, Protocol

from support.schedules import Schedule, Step

Event = dict[str, Any]


class Wire(Protocol):
    """Writes one answer."""

    def opening(self) -> list[Event]:
        """What is sent before the first token."""

    def step(self, step: Step) -> Event: ...

    def error(self) -> Event: ...

    def ending(self) -> list[Event]: ...


class ChatWire:
    """Chat Completions; Completions too."""

    def __init__(self, id: str, body: dict[str, Any], schedule: Schedule, *, is_raw: bool = False) -> None:
        tier = schedule.tier or body.get("service_tier") or "default"
        self._head = {"id": id, "model": body.get("model"), "service_tier": tier, "system_fingerprint": "fp_reference"}
        self._is_raw = is_raw
        self._schedule = schedule
        self._sent = 0
        self._calls = 0
        options = body.get("stream_options") or {}
        self._has_usage = bool(options.get("include_usage")) and schedule.usage != "none"
        self._counts = self._has_usage and schedule.usage == "chunks" and bool(options.get("continuous_usage_stats"))

    def opening(self) -> list[Event]:
        return [] if self._is_raw else [self._chunk({"delta": {"role": "assistant", "content": ""}})]

    def step(self, step: Step) -> Event:
        self._sent += step.tokens
        if self._is_raw:
            return self._chunk({"text": step.text})
        match step.kind:
            case "answer":
                return self._chunk({"delta": {"content": step.text}})
            case "thought":
                return self._chunk({"delta": {"reasoning_content": step.text}})
            case "tool":
                begin = {} if self._calls else {"id": "call_1", "type": "function"}
                name = {} if self._calls else {"name": "look"}
                self._calls = 1
                call = {"index": 0, **begin, "function": {**name, "arguments": step.text}}
                return self._chunk({"delta": {"tool_calls": [call]}})

    def error(self) -> Event:
        return {"error": {"message": "the reference endpoint fails here", "type": "server_error"}}

    def ending(self) -> list[Event]:
        reason = "tool_calls" if self._calls else "stop"
        last = self._chunk({"finish_reason": reason, **({"text": ""} if self._is_raw else {"delta": {}})})
        if not self._has_usage:
            return [last]
        return [last, {**self._head, "choices": [], "usage": self._usage(whole=True), **self._schedule.own}]

    def _chunk(self, choice: Event) -> Event:
        usage = {"usage": self._usage() if self._counts else None} if self._has_usage else {}
        return {**self._head, "choices": [{"index": 0, "finish_reason": None, **choice}], **usage}

    def _usage(self, *, whole: bool = False) -> Event:
        output = self._sent + (self._schedule.reasoning_tokens if whole else 0)
        usage: Event = {"prompt_tokens": 10, "completion_tokens": output, "total_tokens": 10 + output}
        if whole:
            usage["prompt_tokens_details"] = {"cached_tokens": 4}
            usage["completion_tokens_details"] = {"reasoning_tokens": self._schedule.reasoning_tokens}
        return usage


class ResponseWire:
    """Responses, over HTTP or a WebSocket."""

    _DELTAS = {  # noqa: RUF012
        "answer": "response.output_text.delta",
        "thought": "response.reasoning_text.delta",
        "tool": "response.function_call_arguments.delta",
    }

    def __init__(self, id: str, body: dict[str, Any], schedule: Schedule) -> None:
        tier = schedule.tier or body.get("service_tier") or "default"
        self._response = {"id": id, "object": "response", "model": body.get("model"), "service_tier": tier}
        self._schedule = schedule
        self._sent = 0

    def opening(self) -> list[Event]:
        return [{"type": "response.created", "response": {**self._response, "status": "in_progress", "usage": None}}]

    def step(self, step: Step) -> Event:
        self._sent += step.tokens
        return {"type": self._DELTAS[step.kind], "item_id": f"{step.kind}_1", "delta": step.text}

    def error(self) -> Event:
        return {"type": "error", "error": {"message": "the reference endpoint fails here", "type": "server_error"}}

    def ending(self) -> list[Event]:
        hidden = self._schedule.reasoning_tokens
        usage = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": self._sent + hidden,
            "output_tokens_details": {"reasoning_tokens": hidden},
        }
        told = {"usage": usage if self._schedule.usage != "none" else None, **self._schedule.own}
        return [{"type": "response.completed", "response": {**self._response, "status": "completed", **told}}]
