"""Tools and the choice among them, as Chat Completions (nested) and Responses (flat) write them.

::

    nested  {"type": "function", "function": {"name": …, "description": …, "parameters": …, "strict": …}}
    flat    {"type": "function", "name": …, "description": …, "parameters": …, "strict": …}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ultrafast.serving.wire.body import convert, refuse
from ultrafast.types import Tool, ToolChoice

MAX_TOOLS = 128

ToolName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,128}\Z")]  # OpenAI's, and the dots and length of others


class Function(Struct):
    """A function on offer."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _NestedTool(Struct):
    function: Function


class _Typed(Struct):
    type: str


class _Named(Struct):
    name: str


class _NestedName(Struct):
    function: _Named


class _Allowed(Struct):
    mode: Literal["auto", "required"]
    tools: list[Any]


class _NestedAllowed(Struct):
    allowed_tools: _Allowed


def tools_of(sent: Sequence[Any] | None, where: str, *, nested: bool) -> list[Tool]:
    """The functions among the tools that a request offers.

    Tools of other types (``web_search`` and the like, which run at OpenAI) are left out: clients send them to any
    server, and the model cannot call what it is not told of.

    Args:
        sent: as sent.
        where: path of the list in the body, for errors.
        nested: the form; see the module.

    Raises:
        RequestError: 400 naming the tool or its field.
    """
    if len(sent or ()) > MAX_TOOLS:
        raise refuse(where, f"At most {MAX_TOOLS} tools can be offered, not {len(sent or ())}.")
    tools: dict[str, Tool] = {}
    for index, item in enumerate(sent or ()):
        path = f"{where}[{index}]"
        if convert(item, _Typed, path).type != "function":
            continue
        function = convert(item, _NestedTool, path).function if nested else convert(item, Function, path)
        if function.name in tools:
            name = f"{path}.function.name" if nested else f"{path}.name"
            raise refuse(name, f"There are two tools named {function.name!r}; each needs a name of its own.")
        tools[function.name] = tool_of(function)
    return list(tools.values())


def tool_of(function: Function) -> Tool:
    """The tool that calls a function."""
    return Tool(function.name, function.description or "", function.parameters or {}, bool(function.strict))


def choice_of(value: Any, tools: Sequence[Tool], where: str, *, nested: bool, parallel: bool | None) -> ToolChoice:
    """What a ``tool_choice`` means.

    Args:
        value: as sent: a word or an object; None: ``auto``.
        tools: on offer, of `tools_of`.
        where: path of the choice in the body, for errors.
        nested: the form of the tools in it; see the module.
        parallel: ``parallel_tool_calls`` as sent. A choice of one function is one call, whatever it says.

    Raises:
        RequestError: 400 for a choice that is none, or that cannot be kept with these tools.
    """
    many = parallel is not False
    if value is None or value == "auto":
        return ToolChoice("auto", parallel=many)
    if value == "none":
        return ToolChoice("none")
    if value == "required":
        if not tools:
            raise refuse(where, "'required' needs at least one function in the tools.")
        return ToolChoice("required", parallel=many)
    if not isinstance(value, dict):
        raise refuse(where, "Invalid tool choice; accepted: 'none', 'auto', 'required', or an object.")
    kind = convert(value, _Typed, where).type
    if kind == "function":
        return ToolChoice("required", (_name(value, tools, where, nested=nested),), parallel=False)
    if kind == "allowed_tools":
        return _allowed(value, tools, where, nested=nested, parallel=many)
    raise refuse(
        f"{where}.type", f"A tool of type {kind[:64]!r} cannot be chosen here; accepted: 'function', 'allowed_tools'."
    )


def _allowed(value: Any, tools: Sequence[Tool], where: str, *, nested: bool, parallel: bool) -> ToolChoice:
    if nested:
        allowed, where = convert(value, _NestedAllowed, where).allowed_tools, f"{where}.allowed_tools"
    else:
        allowed = convert(value, _Allowed, where)
    names = []
    for index, item in enumerate(allowed.tools):
        path = f"{where}.tools[{index}]"
        if convert(item, _Typed, path).type == "function":
            names.append(_name(item, tools, path, nested=nested))
    if names:
        return ToolChoice(allowed.mode, tuple(dict.fromkeys(names)), parallel=parallel)
    if allowed.mode == "required":
        raise refuse(f"{where}.tools", "'required' needs at least one function among the allowed tools.")
    return ToolChoice("none")


def _name(value: Any, tools: Sequence[Tool], where: str, *, nested: bool) -> str:
    """The function that an object names: one of those on offer."""
    named = convert(value, _NestedName, where).function if nested else convert(value, _Named, where)
    if all(named.name != tool.name for tool in tools):
        path = f"{where}.function.name" if nested else f"{where}.name"
        raise refuse(path, f"There is no function {named.name[:128]!r} in the tools.")
    return named.name
