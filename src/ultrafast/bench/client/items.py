"""Messages as Chat Completions has them, said as items of Responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]


def items_of(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The items that say the same. What is no message of Chat Completions stays as it is."""
    return [item for message in messages for item in _items(message)]


def _items(message: Message) -> Iterator[dict[str, Any]]:
    role = message.get("role")
    if role is None:
        yield dict(message)
    elif role == "tool":
        call_id, output = message.get("tool_call_id"), _text(message.get("content"))
        yield {"type": "function_call_output", "call_id": call_id, "output": output}
    else:
        if message.get("content"):
            yield {"role": role, "content": _content(message["content"], is_answer=role == "assistant")}
        for call in message.get("tool_calls") or ():
            yield {"type": "function_call", "call_id": call["id"], **_named(call["function"])}


def _named(function: Message) -> dict[str, Any]:
    return {"name": function["name"], "arguments": function["arguments"]}


def _content(content: str | Sequence[Message], *, is_answer: bool) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_part(part, is_answer=is_answer) for part in content]


def _part(part: Message, *, is_answer: bool) -> dict[str, Any]:
    match part.get("type"):
        case "text":
            return {"type": "output_text" if is_answer else "input_text", "text": part["text"]}
        case "image_url":
            return {"type": "input_image", "image_url": part["image_url"]["url"]}
        case _:
            return dict(part)


def _text(content: str | Sequence[Message] | None) -> str:
    """The output of a tool, which is text."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)
