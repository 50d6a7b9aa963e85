"""What a chat template can do, found out by rendering small conversations with it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ultrafast.chat.syntax import HERMES, LISTED, LLAMA, MISTRAL, CallSyntax
from ultrafast.errors import RequestError
from ultrafast.types import Message

Arguments = type[dict[str, Any]] | type[str]
"""How a template wants the arguments of calls: as an object, or as JSON text."""


class Render(Protocol):
    """A model's chat template, as `ChatTemplate.render`."""

    def __call__(self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] | None = None) -> str: ...


@dataclass(frozen=True, slots=True)
class Abilities:
    """What `fit` need not do for a template. The defaults are those of a plain one, which writes down any
    role and content.

    Attributes:
        syntax: in which it writes calls or wants them written; None: it knows no tools, or calls in another syntax.
        calls: how the arguments of ``tool_calls`` must be given; None: it does not write calls.
        parallel: several calls in one message.
        results: messages of the role ``tool``.
        system: a system message at the beginning.
        late_system: and elsewhere.
        repeats: two messages of one role, one after the other.
        thinks: ``<think>`` and ``</think>`` mean something to it.
        begins_thought: it ends the prompt with ``<think>``.
    """

    syntax: CallSyntax | None = None
    calls: Arguments | None = None
    parallel: bool = True
    results: bool = False
    system: bool = True
    late_system: bool = True
    repeats: bool = True
    thinks: bool = False
    begins_thought: bool = False


_USER: Message = {"role": "user", "content": "probe-user"}
_ASSISTANT: Message = {"role": "assistant", "content": "probe-assistant"}
_SYSTEM: Message = {"role": "system", "content": "probe-system"}
_SCHEMA = {"type": "object", "properties": {"probe_key": {"type": "string"}}, "required": ["probe_key"]}
_TOOLS = [
    {"type": "function", "function": {"name": "probe_tool", "description": "probe", "parameters": _SCHEMA}},
]
_OBJECT = {"probe_key": "probe_value"}
_JSON = r'\{"probe_key":\s*"probe_value"\}'
_CALL = rf'\{{\s*"name":\s*"probe_call_1",\s*"%s":\s*{_JSON}'
_WRITTEN = (  # calls in a prompt
    (LISTED, r"<tool_call>\s*\[\s*" + _CALL % "arguments"),
    (HERMES, r"<tool_call>\s*" + _CALL % "arguments"),
    (MISTRAL, r"\[TOOL_CALLS\]\s*\[\s*" + _CALL % "arguments"),
    (LLAMA, _CALL % "parameters"),
)
_EXPLAINED = ((LISTED, r'<tool_call>\s*\[\s*\{"name"'), (HERMES, r'<tool_call>\s*\{"name"'))


def find_abilities(source: str, render: Render) -> Abilities:
    """What the template can do.

    Args:
        source: of the template.
        render: it.
    """
    prompt = _render(render, [_USER])
    if not prompt:  # nothing can be learned from it
        return Abilities()
    syntax, calls, parallel, results = _tool_abilities(render)
    return Abilities(
        syntax=syntax,
        calls=calls,
        parallel=parallel,
        results=results,
        system="probe-system" in _render(render, [_SYSTEM, _USER]),
        late_system="probe-system" in _render(render, [_USER, _ASSISTANT, _SYSTEM, _USER]),
        repeats=_render(render, [_USER, _USER]).count("probe-user") == 2,
        thinks="</think>" in source,
        begins_thought=prompt.rstrip().endswith("<think>"),
    )


def _tool_abilities(render: Render) -> tuple[CallSyntax | None, Arguments | None, bool, bool]:
    """See `Abilities`: ``syntax``, ``calls``, ``parallel`` and ``results``."""
    described = _render(render, [_USER], _TOOLS)
    if "probe_tool" not in described:
        return None, None, True, False
    kinds: tuple[Arguments, ...] = (str, dict)
    written = ((kind, _first(_WRITTEN, _render(render, [_USER, _calls(kind, 1)], _TOOLS))) for kind in kinds)
    calls, syntax = next((found for found in written if found[1]), (None, _first(_EXPLAINED, described)))
    if syntax is None:
        return None, None, True, False
    one = _render(render, [_USER, _calls(calls, 1), _result(1)], _TOOLS)
    two = _render(render, [_USER, _calls(calls, 1, 2), _result(1), _result(2)], _TOOLS)
    parallel = "probe_call_2" in two and "probe_result_2" in two
    return syntax, calls, parallel or calls is None, "probe_result_1" in one


def _first(patterns: Sequence[tuple[CallSyntax, str]], prompt: str) -> CallSyntax | None:
    return next((syntax for syntax, pattern in patterns if re.search(pattern, prompt)), None)


def _calls(arguments: Arguments | None, *numbers: int) -> Message:
    """An assistant message with a call for each number."""
    value = _OBJECT if arguments is dict else json.dumps(_OBJECT)
    calls = [
        {"id": f"{number:09}", "type": "function", "function": {"name": f"probe_call_{number}", "arguments": value}}
        for number in numbers
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _result(number: int) -> Message:
    name, result = f"probe_call_{number}", f"probe_result_{number}"
    return {"role": "tool", "tool_call_id": f"{number:09}", "name": name, "content": result}


def _render(render: Render, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
    """The prompt; empty if the template refuses."""
    try:
        return render(messages, tools=tools)
    except RequestError:
        return ""
