"""Tools of the Responses API: what is offered to the model, and which of it may be called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ultrafast.serving.wire.body import convert, refuse
from ultrafast.types import Tool, ToolChoice

_Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class _Function(Struct):
    name: _Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Namespace(Struct):
    name: _Name
    tools: list[dict[str, Any]]


class _Choice(Struct):
    type: str
    name: str | None = None
    namespace: str | None = None
    mode: Literal["auto", "required"] = "auto"
    tools: list[dict[str, Any]] = []


@dataclass(frozen=True, slots=True)
class Offered:
    """The functions on offer.

    Attributes:
        tools: by the name that the model knows.
        origins: by the same name, its own name and its namespace.
        names: the other way round.
        implied: names of those that are strict because nothing else was said.
    """

    tools: Mapping[str, Tool]
    origins: Mapping[str, tuple[str, str | None]]
    names: Mapping[tuple[str, str | None], str]
    implied: frozenset[str]

    def relaxed(self) -> Offered:
        """Without the strictness that was not asked for."""
        tools = {
            name: replace(tool, strict=False) if name in self.implied else tool for name, tool in self.tools.items()
        }
        return replace(self, tools=tools, implied=frozenset())

    def name_of(self, name: str, namespace: str | None) -> str:
        """The name that the model knows."""
        return self.names.get((name, namespace), name)

    def call_of(self, offered: str) -> dict[str, str]:
        """The fields ``name`` and, where there is one, ``namespace`` of a call that the model made."""
        name, namespace = self.origins.get(offered, (offered, None))
        return {"name": name} if namespace is None else {"name": name, "namespace": namespace}


def offered_tools(tools: Iterable[tuple[dict[str, Any], str]]) -> Offered:
    """The functions among tools; what only another host could run is left out.

    Args:
        tools: each with its path in the body. Those of the conversation, which come after those of the request,
            take the place of older ones of the same name.

    Raises:
        RequestError: 400 naming the field of the tool at fault, or a name that stands for two functions.
    """
    offered: dict[str, Tool] = {}
    origins: dict[str, tuple[str, str | None]] = {}
    implied = set()
    for function, namespace, where in _functions(tools):
        name = function.name
        if namespace is not None and origins.get(name, (name, namespace)) != (name, namespace):
            name = f"{namespace}__{name}"  # two namespaces may have functions of the same name
        if name in offered and where.startswith("tools["):
            raise refuse(f"{where}.name", f"Two tools are named {name!r}.")
        strict = function.strict is not False and function.parameters is not None
        offered[name] = Tool(name, function.description or "", function.parameters or {}, strict)
        origins[name] = (function.name, namespace)
        if strict and function.strict is None:
            implied.add(name)
    return Offered(offered, origins, {origin: name for name, origin in origins.items()}, frozenset(implied))


def tool_choice(sent: str | dict[str, Any] | None, offered: Offered, *, parallel: bool) -> ToolChoice:
    """What ``tool_choice`` means.

    Raises:
        RequestError: 400 for a choice that is not known, or of a tool that is not on offer.
    """
    if sent is None or sent == "auto":
        return ToolChoice("auto", parallel=parallel)
    if sent == "none":
        return ToolChoice("none", parallel=parallel)
    if sent == "required":
        if not offered.tools:
            raise refuse("tool_choice", "tool_choice is 'required', and no function is among 'tools'.")
        return ToolChoice("required", parallel=parallel)
    if isinstance(sent, str):
        raise refuse("tool_choice", f"Invalid tool_choice {sent[:64]!r}; accepted: none, auto, required, or an object.")
    choice = convert(sent, _Choice, "tool_choice")
    if choice.type == "function":
        return ToolChoice("required", (_chosen(choice, offered, "tool_choice"),), parallel)
    if choice.type != "allowed_tools":
        raise refuse(
            "tool_choice.type",
            f"Tools of type {choice.type[:64]!r} cannot be chosen here; accepted: function, allowed_tools.",
        )
    names = []
    for index, tool in enumerate(choice.tools):
        where = f"tool_choice.tools[{index}]"
        allowed = convert(tool, _Choice, where)
        if allowed.type == "function":
            names.append(_chosen(allowed, offered, where))
    if not names:  # an empty list of names would mean all
        if choice.mode == "required":
            raise refuse("tool_choice.tools", "None of the allowed tools is a function on offer.")
        return ToolChoice("none", parallel=parallel)
    return ToolChoice(choice.mode, tuple(names), parallel)


def _functions(tools: Iterable[tuple[dict[str, Any], str]]) -> Iterator[tuple[_Function, str | None, str]]:
    """Every function with its namespace and its path."""
    for tool, at in tools:
        kind = tool.get("type")
        if not isinstance(kind, str):
            raise refuse(f"{at}.type", "A tool needs a type, such as 'function'.")
        if kind == "function":
            yield convert(tool, _Function, at), None, at
        elif kind == "namespace":
            namespace = convert(tool, _Namespace, at)
            for index, nested in enumerate(namespace.tools):
                inner = f"{at}.tools[{index}]"
                if nested.get("type") == "function":
                    yield convert(nested, _Function, inner), namespace.name, inner


def _chosen(choice: _Choice, offered: Offered, where: str) -> str:
    name = offered.name_of(choice.name or "", choice.namespace)
    if name not in offered.tools:
        raise refuse(f"{where}.name", f"No function on offer is named {(choice.name or '')[:64]!r}.")
    return name
