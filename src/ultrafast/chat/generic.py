"""Tools for models whose template knows none: described in the system message, called and answered in plain messages.

Calls have the form of `syntax.HERMES`, which the models that know any know best.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ultrafast.chat.syntax import HERMES
from ultrafast.types import Message

_BEFORE = "You can call these tools:\n"
_AFTER = """
To call one, write its name and its arguments in this form:
<tool_call>
{"name": "name of the tool", "arguments": {"name of an argument": "its value"}}
</tool_call>
Several calls may follow each other. What the tools return comes next, in <tool_response> and </tool_response>. \
When you need no tool, answer in plain words."""


def describe(tools: Sequence[Mapping[str, Any]]) -> str:
    """What a model is told about its tools.

    Args:
        tools: ``{"type": "function", "function": {…}}`` each.
    """
    lines = (json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return "\n".join([_BEFORE, *lines, _AFTER])


def with_instructions(messages: Sequence[Message], text: str) -> list[Message]:
    """The messages with ``text`` at the end of the system message, which is added where there is none."""
    if messages and messages[0]["role"] == "system":
        first = dict(messages[0])
        first["content"] = f"{first['content']}\n\n{text}" if first.get("content") else text
        return [first, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def without_tool_messages(messages: Sequence[Message]) -> list[Message]:
    """The messages with calls as text of the assistant's and results as text of the user's: no key or role is left
    that a template might not know."""
    plain: list[Message] = []
    in_results = False
    for message in messages:
        if message["role"] != "tool":
            plain.append(_without_calls(message))
            in_results = False
            continue
        text = f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"
        if in_results:  # of one turn: templates want user and assistant to take turns
            text = f"{plain.pop()['content']}\n{text}"
        plain.append({"role": "user", "content": text})
        in_results = True
    return plain


def _without_calls(message: Message) -> Message:
    calls = message.get("tool_calls")
    if not calls:
        return message
    content = message.get("content") or ""
    texts = [content] if content else []
    for call in calls:
        name = json.dumps(call["function"]["name"], ensure_ascii=False)
        arguments = call["function"]["arguments"]
        texts.append(f'{HERMES.opening}{{"name": {name}, "arguments": {arguments}}}{HERMES.closing}')
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": HERMES.between.join(texts)}
