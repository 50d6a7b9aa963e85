"""The conversation of ``/v1/messages``: from turns of content blocks to the messages that chat templates know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ultrafast.serving.wire.body import refuse
from ultrafast.types import Message

_BETWEEN = "\n\n"  # blocks are paragraphs: nothing says that they run on
_BILLING = "x-anthropic-billing-header:"  # how a block begins that is for Anthropic's billing


class TextBlock(Struct, tag="text"):
    text: str


class ImageBlock(Struct, tag="image"):
    pass


class DocumentBlock(Struct, tag="document"):
    pass


class ToolReferenceBlock(Struct, tag="tool_reference"):
    """What a client's own tool search found."""

    tool_name: str


class ToolUseBlock(Struct, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


ResultBlock = TextBlock | ImageBlock | DocumentBlock | ToolReferenceBlock


class ToolResultBlock(Struct, tag="tool_result"):
    tool_use_id: str
    content: str | list[ResultBlock] | None = None
    is_error: bool | None = None


class ThinkingBlock(Struct, tag="thinking"):
    thinking: str


class RedactedThinkingBlock(Struct, tag="redacted_thinking"):
    """Thoughts that nobody here can read."""


Block = TextBlock | ImageBlock | DocumentBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock


class MessageParam(Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class SystemBlock(Struct):
    """Of ``system``. Its type must be there; that of a `TextBlock` only tells it apart from others."""

    type: Literal["text"]
    text: str


def conversation(system: str | Sequence[SystemBlock] | None, turns: Sequence[MessageParam]) -> Sequence[Message]:
    """Messages as `ChatFormat.plan` takes them. Adjacent turns of one role become one.

    Args:
        system: as sent.
        turns: as sent; a ``system`` one stays where it is.

    Raises:
        RequestError: 400 for a block that is not served, or not in this place, naming it.
    """
    messages: list[dict[str, Any]] = []
    instructions = system if isinstance(system, str) else _system(system or ())
    if instructions:
        messages.append({"role": "system", "content": instructions})
    for index, turn in enumerate(turns):
        where = f"messages[{index}].content"
        blocks = [TextBlock(turn.content)] if isinstance(turn.content, str) else turn.content
        if turn.role == "assistant":
            _append(messages, _assistant(blocks, where))
        elif turn.role == "user":
            for message in _user(blocks, where):
                _append(messages, message)
        else:
            messages.append({"role": "system", "content": _joined(_texts(blocks, where))})
    return messages


def _system(blocks: Iterable[SystemBlock]) -> str:
    """The system prompt, without what Claude Code tells Anthropic in its first block: that changes from request to
    request, and no cached prefix would ever be of use.
    """
    return _joined(block.text for block in blocks if not block.text.startswith(_BILLING))


def _user(blocks: Iterable[Block], where: str) -> list[dict[str, Any]]:
    """A turn of the user: results of tools and text, in the order sent."""
    messages: list[dict[str, Any]] = []
    for index, block in enumerate(blocks):
        if isinstance(block, ToolResultBlock):
            messages.append(_result(block, f"{where}[{index}]"))
        else:
            _append(messages, {"role": "user", "content": _text(block, f"{where}[{index}]")})
    return messages or [{"role": "user", "content": ""}]


def _result(block: ToolResultBlock, where: str) -> dict[str, Any]:
    content = block.content or ""
    if not isinstance(content, str):
        content = _joined(_texts(content, f"{where}.content"))
    if block.is_error:
        content = f"Error: {content}"  # templates have no other place for it
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}


def _assistant(blocks: Iterable[Block], where: str) -> dict[str, Any]:
    """A turn of the model: thoughts, text and calls."""
    texts, thoughts, calls = [], [], []
    for index, block in enumerate(blocks):
        if isinstance(block, ToolUseBlock):
            function = {"name": block.name, "arguments": msgspec.json.encode(block.input).decode()}
            calls.append({"id": block.id, "type": "function", "function": function})
        elif isinstance(block, ThinkingBlock):
            thoughts.append(block.thinking)
        elif not isinstance(block, RedactedThinkingBlock):
            texts.append(_text(block, f"{where}[{index}]"))
    message: dict[str, Any] = {"role": "assistant", "content": _joined(texts)}
    if calls:
        message["tool_calls"] = calls
    if reasoning := _joined(thoughts):
        message["reasoning_content"] = reasoning
    return message


def _append(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """Add a message, to the one before it where that is of the same side."""
    role = message["role"]
    if not messages or role == "tool" or messages[-1]["role"] != role:
        messages.append(message)
        return
    last = messages[-1]
    for field in ("content", "reasoning_content"):
        if both := _joined([last.get(field, ""), message.get(field, "")]):
            last[field] = both
    if "tool_calls" in message:
        last["tool_calls"] = last.get("tool_calls", []) + message["tool_calls"]


def _texts(blocks: Iterable[Block | ResultBlock], where: str) -> list[str]:
    return [_text(block, f"{where}[{index}]") for index, block in enumerate(blocks)]


def _text(block: Block | ResultBlock, where: str) -> str:
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, ToolReferenceBlock):
        return block.tool_name
    kind = block.__struct_config__.tag
    if isinstance(block, ImageBlock | DocumentBlock):
        raise refuse(where, f"Content blocks of type '{kind}' are not supported: this server takes text only.")
    raise refuse(where, f"A content block of type '{kind}' has no place in a message of this role.")


def _joined(texts: Iterable[str]) -> str:
    return _BETWEEN.join(filter(None, texts))
