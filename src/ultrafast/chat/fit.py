"""Makes a conversation fit a chat template: what the template cannot do is said in ways that it can.

A model whose template knows no tools is told about them in the system message, and calls and results become plain
messages. Calls have the form of `syntax.HERMES` then, which the models that know any know best.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from ultrafast.chat.abilities import Abilities, Arguments
from ultrafast.chat.syntax import HERMES, CallSyntax
from ultrafast.types import Message

_BEFORE = "You can call these tools:\n"
_AFTER = """
To call one, write its name and its arguments in this form:
<tool_call>
{"name": "name of the tool", "arguments": {"name of an argument": "its value"}}
</tool_call>
Several calls may follow each other. What the tools return comes next, in <tool_response> and </tool_response>. \
When you need no tool, answer in plain words."""


def fit(messages: Sequence[Message], can: Abilities, tools: Sequence[Mapping[str, Any]] = ()) -> list[Message]:
    """The messages as the template can take them.

    Args:
        can: what the template can do.
        tools: to describe, for a template that does not do that: ``{"type": "function", "function": {…}}`` each.
    """
    fitted = [_without_empty_calls(message) for message in messages]
    if tools:
        fitted = _with_instructions(fitted, _describe(tools))
    fitted = list(_own_calls(fitted, can.calls) if can.calls is not None else _as_text(fitted, can.syntax or HERMES))
    if can.calls is not None and not can.parallel:
        fitted = list(_one_by_one(fitted))
    if not can.results:
        fitted = list(_results_from_user(fitted))
    fitted = [
        _system_from_user(message, can.system if at == 0 else can.late_system) for at, message in enumerate(fitted)
    ]
    return fitted if can.repeats else list(_taking_turns(fitted))


def _without_empty_calls(message: Message) -> Message:
    """Some templates ask only whether there is such a key."""
    if "tool_calls" not in message or message["tool_calls"]:
        return message
    return {key: value for key, value in message.items() if key != "tool_calls"}


def _describe(tools: Sequence[Mapping[str, Any]]) -> str:
    lines = (json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return "\n".join([_BEFORE, *lines, _AFTER])


def _with_instructions(messages: list[Message], text: str) -> list[Message]:
    """``text`` goes to the end of the system message, which is added where there is none."""
    if messages and messages[0]["role"] == "system":
        first = messages[0]
        content = f"{first['content']}\n\n{text}" if first.get("content") else text
        return [{**first, "content": content}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _as_text(messages: list[Message], syntax: CallSyntax) -> Iterator[Message]:
    """Calls as a model writes them."""
    for message in messages:
        calls = message.get("tool_calls")
        if not calls:
            yield message
            continue
        bodies = [_body(call["function"], syntax) for call in calls]
        if syntax.listed:
            bodies = [f"[{syntax.between.join(bodies)}]"]
        text = syntax.between.join(f"{syntax.opening}{body}{syntax.closing}" for body in bodies)
        content = message.get("content")
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        yield {**rest, "content": f"{content}\n{text}" if content else text}


def _body(function: Mapping[str, Any], syntax: CallSyntax) -> str:
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'{{"name": {name}, "{syntax.arguments}": {function["arguments"]}}}'


def _own_calls(messages: list[Message], arguments: Arguments) -> Iterator[Message]:
    """Arguments as the template wants them, and ids that any template takes: nine digits, counted from the first."""
    numbers = count(1)
    ids: dict[Any, str] = {}
    for message in messages:
        if message.get("tool_calls"):
            calls = []
            for call in message["tool_calls"]:
                ids[call.get("id")] = f"{next(numbers):09}"
                function = {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
                if arguments is dict:
                    function["arguments"] = _object(function["arguments"])
                calls.append({"id": ids[call.get("id")], "type": "function", "function": function})
            yield {**message, "content": message.get("content") or "", "tool_calls": calls}
        elif message["role"] == "tool":
            known = ids.get(message.get("tool_call_id"))
            yield {**message, "tool_call_id": known or f"{next(numbers):09}"}
        else:
            yield message


def _object(text: str) -> Any:
    """The arguments; what is no JSON object (a call that was cut, say) stays text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _one_by_one(messages: list[Message]) -> Iterator[Message]:
    """Each call in a message of its own, followed by its result."""
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if len(message.get("tool_calls") or ()) < 2:
            yield message
            continue
        results = []
        while at < len(messages) and messages[at]["role"] == "tool":
            results.append(messages[at])
            at += 1
        for number, call in enumerate(message["tool_calls"]):
            yield {**message, "content": message["content"] if number == 0 else "", "tool_calls": [call]}
            yield from (result for result in results if result["tool_call_id"] == call["id"])
        ids = [call["id"] for call in message["tool_calls"]]
        yield from (result for result in results if result["tool_call_id"] not in ids)


def _results_from_user(messages: list[Message]) -> Iterator[Message]:
    """Results as messages of the user, those of one turn together."""
    results: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(f"<tool_response>\n{message.get('content') or ''}\n</tool_response>")
            continue
        if results:
            yield {"role": "user", "content": "\n".join(results)}
            results = []
        yield message
    if results:
        yield {"role": "user", "content": "\n".join(results)}


def _system_from_user(message: Message, is_fine: bool) -> Message:
    return message if is_fine or message["role"] != "system" else {**message, "role": "user"}


def _taking_turns(messages: list[Message]) -> Iterator[Message]:
    """Messages of one role after the other made one, unless they are calls or results."""
    last: Message | None = None
    for message in messages:
        if last is not None and last["role"] == message["role"] in ("user", "assistant") and not last.get("tool_calls"):
            parts = [part for part in (last.get("content"), message.get("content")) if part]
            last = {**last, **message, "content": "\n\n".join(parts)}
            continue
        if last is not None:
            yield last
        last = message
    if last is not None:
        yield last
