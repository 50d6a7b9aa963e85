"""Items of the Responses API: how they are checked and completed, and what they mean to a chat template.

An item in its complete form is a plain dict with ``id`` and ``type``; a message has a list of parts as ``content``.
That form is what is stored, listed and continued from.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ultrafast.serving.wire.body import convert, refuse, unsupported
from ultrafast.serving.wire.messages import Content, Part, plain_message, plain_text
from ultrafast.types import Message

Item = dict[str, Any]


class _Item(Struct):
    id: str | None = None


class _Message(_Item):
    role: str | None = None
    content: Content | None = None


class _FunctionCall(_Item, kw_only=True):
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    status: str | None = None


class _CustomCall(_Item, kw_only=True):
    call_id: str
    name: str
    input: str


class _CallOutput(_Item, kw_only=True):
    call_id: str
    output: Content


class _Reasoning(_Item):
    summary: list[Part] | None = None
    content: list[Part] | None = None


class _AdditionalTools(_Item, kw_only=True):
    tools: list[dict[str, Any]]


class _ConfigurationUpdate(_Item):
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None


_KINDS: Mapping[str, tuple[type[_Item], str]] = {  # how each is checked, and what its ids begin with
    "message": (_Message, "msg"),
    "function_call": (_FunctionCall, "fc"),
    "function_call_output": (_CallOutput, "fco"),
    "custom_tool_call": (_CustomCall, "ctc"),
    "custom_tool_call_output": (_CallOutput, "ctco"),
    "reasoning": (_Reasoning, "rs"),
    "additional_tools": (_AdditionalTools, "at"),
    "configuration_update": (_ConfigurationUpdate, "cu"),
    "compaction": (_Item, "cmp"),  # opaque to all but who made it
}
OUTPUTS = {  # the kinds that answer a call, and the kind of their calls
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
}


def new_id(prefix: str) -> str:
    """A fresh id, such as ``msg_…``."""
    return f"{prefix}_{secrets.token_hex(16)}"


def read_input(sent: str | Sequence[Item], history: Sequence[Item]) -> list[Item]:
    """The ``input`` of a request as complete items.

    Args:
        sent: a text, which is one user message, or items.
        history: complete items of the conversation before it: what references and outputs of calls may refer to.

    Raises:
        RequestError: 400 naming the field of the item at fault.
    """
    if isinstance(sent, str):
        sent = [{"role": "user", "content": sent}]
    items: list[Item] = []
    by_id = {item["id"]: item for item in history}
    calls = {_call_of(item) for item in history}
    for index, item in enumerate(sent):
        where = f"input[{index}]"
        kind = _kind(item, where)
        if kind == "item_reference":
            items.append(_referenced(item, by_id, where))
        else:
            complete = _complete(item, kind, where)
            if kind in OUTPUTS and (OUTPUTS[kind], complete["call_id"]) not in calls:  # no template could show it
                call_id = complete["call_id"][:64]
                raise refuse(f"{where}.call_id", f"There is no {OUTPUTS[kind]} before it with call_id {call_id!r}.")
            items.append(complete)
            by_id[complete["id"]] = complete
            calls.add(_call_of(complete))
    return items


def is_answerable(item: Item) -> bool:
    """Whether it is a call that a client can bring the result of."""
    return _call_of(item) is not None


def answer_to(call: Item | None, text: str) -> Item:
    """A complete item with the result of a call, or with what the user says."""
    if call is None:
        part = _text_part("input_text", text)
        return {"id": new_id("msg"), "type": "message", "status": "completed", "role": "user", "content": [part]}
    kind = next(output for output, answered in OUTPUTS.items() if answered == call["type"])
    return {"id": new_id(_KINDS[kind][1]), "type": kind, "call_id": call["call_id"], "output": text}


def to_messages(
    items: Iterable[Item], instructions: str | None, name_of: Callable[[str, str | None], str]
) -> list[Message]:
    """What complete items are to `ChatFormat.plan`.

    Calls join the assistant's message before them, thoughts become ``reasoning_content`` of the next one.

    Args:
        items: the whole conversation.
        instructions: a system message before all others.
        name_of: the name under which the model knows a function, from its own name and its namespace.
    """
    messages: list[dict[str, Any]] = []
    thoughts = ""
    if instructions:
        messages.append({"role": "system", "content": instructions})
    for item in items:
        kind = item["type"]
        if kind == "reasoning":
            thoughts += _thought(item)
            continue
        if kind in OUTPUTS:
            text = plain_text(convert(item["output"], Content, "input"), "input")  # type: ignore[arg-type]
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": text})
        elif kind == "message":
            messages.append(dict(plain_message(item["role"], convert(item["content"], list[Part], "input"), "input")))
        elif kind in ("function_call", "custom_tool_call"):
            if item.get("status") == "incomplete":  # cut by a limit: its arguments are no JSON
                continue
            if not messages or messages[-1]["role"] != "assistant" or thoughts:
                messages.append({"role": "assistant", "content": ""})
            messages[-1].setdefault("tool_calls", []).append(_tool_call(item, name_of))
        else:
            continue
        if thoughts and messages[-1]["role"] == "assistant":
            messages[-1]["reasoning_content"] = thoughts
        thoughts = ""
    return messages  # type: ignore[return-value]


def _kind(item: Item, where: str) -> str:
    kind = item.get("type")
    if kind is None:  # two kinds may leave it out
        return "item_reference" if "id" in item and "role" not in item and "content" not in item else "message"
    if not isinstance(kind, str):
        raise refuse(f"{where}.type", "The type of an item is a string.")
    if kind not in _KINDS and kind != "item_reference":
        raise unsupported(f"{where}.type", f"Input of type {kind[:64]!r}")
    return kind


def _complete(item: Item, kind: str, where: str) -> Item:
    model, prefix = _KINDS[kind]
    checked = convert(item, model, where)
    complete = {**item, "id": checked.id or new_id(prefix), "type": kind}
    if isinstance(checked, _Message):
        complete = {"status": "completed", **complete, **_complete_message(checked, where)}
    elif isinstance(checked, _CallOutput):
        plain_text(checked.output, f"{where}.output")
    return complete


def _complete_message(message: _Message, where: str) -> dict[str, Any]:
    """The fields of a message that differ in its complete form."""
    if message.role is None:
        raise refuse(f"{where}.role", "A message needs a role.")
    plain_message(message.role, message.content, where)
    part_type = "output_text" if message.role == "assistant" else "input_text"
    if message.content is None:
        return {"content": []}
    if isinstance(message.content, str):
        return {"content": [_text_part(part_type, message.content)]}
    return {}


def _text_part(type: str, text: str) -> dict[str, Any]:
    return {"type": type, "text": text} | ({"annotations": []} if type == "output_text" else {})


def _referenced(item: Item, by_id: Mapping[str, Item], where: str) -> Item:
    wanted = convert(item, _Item, where).id
    if wanted is None or wanted not in by_id:
        raise refuse(
            f"{where}.id",
            f"Item {str(wanted)[:64]!r} is not part of this conversation; references find items of earlier turns, "
            "through 'previous_response_id'.",
        )
    return by_id[wanted]


def _call_of(item: Item) -> tuple[str, str] | None:
    """The kind of a call and its ``call_id``, if it is one and can be answered."""
    if item["type"] not in OUTPUTS.values() or item.get("status") == "incomplete":
        return None
    return item["type"], item["call_id"]


def _thought(item: Item) -> str:
    """The text of a reasoning item: all of it if it is there, else its summary."""
    parts = item.get("content") or item.get("summary") or []
    return "\n".join(part.get("text") or "" for part in parts)


def _tool_call(item: Item, name_of: Callable[[str, str | None], str]) -> dict[str, Any]:
    if item["type"] == "custom_tool_call":
        name, arguments = item["name"], json.dumps({"input": item["input"]}, ensure_ascii=False)
    else:
        name, arguments = name_of(item["name"], item.get("namespace")), item["arguments"]
    return {"id": item["call_id"], "type": "function", "function": {"name": name, "arguments": arguments}}
