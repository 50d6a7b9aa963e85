"""The conversation of a Chat Completions request, with its calls and their results, as a chat format takes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ultrafast.serving.wire.body import missing, refuse, refuse_deep, unsupported
from ultrafast.serving.wire.messages import Content, plain_message, plain_text
from ultrafast.types import Message

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class CalledFunction(Struct):
    """A call; some clients send its arguments parsed."""

    name: str
    arguments: str | dict[str, Any]


class CustomCall(Struct):
    name: str
    input: str


class ToolCall(Struct):
    """A call that the assistant made in an earlier turn."""

    id: str | None = None
    function: CalledFunction | None = None
    custom: CustomCall | None = None


class ChatMessage(Struct):
    """One message; ``function_call`` and the role ``function`` are what calls were before there were tools."""

    role: str
    content: Content | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: CalledFunction | None = None
    reasoning_content: str | None = None
    audio: Any = None


def to_messages(sent: Sequence[ChatMessage]) -> list[Message]:
    """The messages for `ChatFormat.plan`.

    A result must follow the call that it answers. A call may stay without one, and may lack an id.

    Raises:
        RequestError: 400 naming the message and its field.
    """
    history = _History()
    return [history.add(message, f"messages[{index}]") for index, message in enumerate(sent)]


class _History:
    """The calls so far."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._last_of: dict[str, str] = {}  # the id of the last call of each function

    def add(self, message: ChatMessage, where: str) -> Message:
        if message.role not in _ROLES:
            raise refuse(f"{where}.role", f"Invalid role {message.role[:64]!r}; accepted: {', '.join(_ROLES)}.")
        if message.role in ("tool", "function"):
            return self._result(message, where)
        plain: dict[str, Any] = {**plain_message(message.role, message.content, where)}
        if message.role == "assistant":
            if message.audio is not None:
                raise unsupported(f"{where}.audio", "Audio")
            if calls := self._calls(message, where):
                plain["tool_calls"] = calls
            if message.reasoning_content:
                plain["reasoning_content"] = message.reasoning_content
        return plain

    def _calls(self, message: ChatMessage, where: str) -> list[dict[str, Any]]:
        calls = []
        for index, call in enumerate(message.tool_calls or ()):
            if call.function is not None:
                refuse_deep(call.function.arguments, f"{where}.tool_calls[{index}].function.arguments")
                calls.append(self._call(call.id, call.function.name, call.function.arguments))
            elif call.custom is not None:
                calls.append(self._call(call.id, call.custom.name, {"input": call.custom.input}))
            else:
                raise missing(f"{where}.tool_calls[{index}].function")
        if message.function_call is not None:
            refuse_deep(message.function_call.arguments, f"{where}.function_call.arguments")
            calls.append(self._call(None, message.function_call.name, message.function_call.arguments))
        return calls

    def _call(self, sent_id: str | None, name: str, arguments: str | dict[str, Any]) -> dict[str, Any]:
        call_id = sent_id or f"call_{len(self._ids)}"
        self._ids.add(call_id)
        self._last_of[name] = call_id
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

    def _result(self, message: ChatMessage, where: str) -> Message:
        if message.role == "tool":
            field, sent, what = "tool_call_id", message.tool_call_id, "id"
            call_id = sent if sent in self._ids else None
        else:
            field, sent, what = "name", message.name, "function"
            call_id = self._last_of.get(sent or "")
        if not sent:
            raise missing(f"{where}.{field}")
        if call_id is None:
            raise refuse(
                f"{where}.{field}",
                f"A {message.role} message answers a call that an assistant message before it made; "
                f"none of them has the {what} {sent[:128]!r}.",
            )
        if message.content is None:
            raise refuse(f"{where}.content", f"A {message.role} message needs content: a string or text parts.")
        return {"role": "tool", "tool_call_id": call_id, "content": plain_text(message.content, f"{where}.content")}
