"""Tools as Chat Completions has them: what is offered to the model, and which of it may be called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ultrafast.serving.wire.body import convert, refuse
from ultrafast.types import Tool, ToolChoice

MAX_TOOLS = 128

FunctionName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,128}\Z")]  # as OpenAI has it, and longer


class Function(Struct):
    """A function on offer."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Named(Struct):
    """The name of a function."""

    name: str


class _Typed(Struct):
    type: str


class _Tool(Struct):
    function: Function


class _Choice(Struct):
    function: Named


class _Allowed(Struct):
    mode: Literal["auto", "required"]
    tools: list[Any]


class _AllowedChoice(Struct):
    allowed_tools: _Allowed


def tools_of(sent: Sequence[Any], where: str) -> list[Tool]:
    """The functions among the tools that a request offers.

    Tools of other types are left out: the model cannot call what it is not told of, and some clients send
    ``web_search`` and the like to every server.

    Args:
        sent: ``{"type": "function", "function": {"name", "description", "parameters", "strict"}}`` each.
        where: path of the list in the body, for errors.

    Raises:
        RequestError: 400 naming the tool or its field.
    """
    functions = [
        (convert(item, _Tool, f"{where}[{index}]").function, f"{where}[{index}].function")
        for index, item in enumerate(sent)
        if convert(item, _Typed, f"{where}[{index}]").type == "function"
    ]
    return functions_of(functions, where)


def functions_of(sent: Sequence[tuple[Function, str]], where: str) -> list[Tool]:
    """Functions as tools.

    Args:
        sent: each with its path in the body.
        where: path of their list.

    Raises:
        RequestError: 400 for too many, or two of one name.
    """
    if len(sent) > MAX_TOOLS:
        raise refuse(where, f"At most {MAX_TOOLS} functions can be offered, not {len(sent)}.")
    tools: dict[str, Tool] = {}
    for function, path in sent:
        if function.name in tools:
            raise refuse(f"{path}.name", f"Two functions are named {function.name!r}.")
        tools[function.name] = Tool(
            function.name, function.description or "", function.parameters or {}, bool(function.strict)
        )
    return list(tools.values())


def choice_of(value: Any, tools: Sequence[Tool], where: str, *, parallel: bool) -> ToolChoice:
    """What a ``tool_choice`` means.

    Args:
        value: as sent: a word or an object; None: ``auto``.
        tools: on offer, of `tools_of`.
        where: path of the choice in the body, for errors.
        parallel: several calls in one answer are fine. A choice of one function is one call, whatever this says.

    Raises:
        RequestError: 400 for a choice that is none, or that these tools cannot meet.
    """
    if value is None or value == "auto":
        return ToolChoice("auto", parallel=parallel)
    if value == "none":
        return ToolChoice("none")
    if value == "required":
        if not tools:
            raise refuse(where, "'required' needs at least one function in the tools.")
        return ToolChoice("required", parallel=parallel)
    if not isinstance(value, dict):
        raise refuse(where, "Invalid tool choice; accepted: 'none', 'auto', 'required', or an object.")
    kind = convert(value, _Typed, where).type
    if kind == "function":
        return forced(convert(value, _Choice, where).function, tools, f"{where}.function")
    if kind == "allowed_tools":
        return _allowed(
            convert(value, _AllowedChoice, where).allowed_tools, tools, f"{where}.allowed_tools.tools", parallel
        )
    raise refuse(f"{where}.type", f"Tools of type {kind[:64]!r} cannot be chosen; accepted: function, allowed_tools.")


def forced(named: Named, tools: Sequence[Tool], where: str) -> ToolChoice:
    """The choice of one function: exactly one call of it.

    Raises:
        RequestError: 400 for one that is not on offer.
    """
    _check_offered(named, tools, where)
    return ToolChoice("required", (named.name,), parallel=False)


def _allowed(allowed: _Allowed, tools: Sequence[Tool], where: str, parallel: bool) -> ToolChoice:
    names = []
    for index, item in enumerate(allowed.tools):
        path = f"{where}[{index}]"
        if convert(item, _Typed, path).type == "function":
            named = convert(item, _Choice, path).function
            _check_offered(named, tools, f"{path}.function")
            names.append(named.name)
    if names:
        return ToolChoice(allowed.mode, tuple(dict.fromkeys(names)), parallel)
    if allowed.mode == "required":
        raise refuse(where, "'required' needs at least one function among the allowed tools.")
    return ToolChoice("none")  # an empty list of names would mean all


def _check_offered(named: Named, tools: Sequence[Tool], where: str) -> None:
    if all(named.name != tool.name for tool in tools):
        raise refuse(f"{where}.name", f"No function on offer is named {named.name[:128]!r}.")
