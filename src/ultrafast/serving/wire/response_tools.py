"""Tools of the Responses API: what is offered to the model, and the names it knows it by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec import Struct

from ultrafast.serving.wire.body import convert, refuse
from ultrafast.serving.wire.tools import Function, ToolName, tool_of
from ultrafast.types import Tool


class _Namespace(Struct):
    name: ToolName
    tools: list[dict[str, Any]]


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
        name = function.name if namespace is None else f"{namespace}__{function.name}"
        if name in offered and where.startswith("tools["):
            raise refuse(f"{where}.name", f"Two tools are named {name!r}.")
        strict = function.strict is not False and function.parameters is not None
        offered[name] = replace(tool_of(function), name=name, strict=strict)
        origins[name] = (function.name, namespace)
        implied.discard(name)
        if strict and function.strict is None:
            implied.add(name)
    return Offered(offered, origins, {origin: name for name, origin in origins.items()}, frozenset(implied))


def _functions(tools: Iterable[tuple[dict[str, Any], str]]) -> Iterator[tuple[Function, str | None, str]]:
    """Every function with its namespace and its path."""
    for tool, at in tools:
        kind = tool.get("type")
        if not isinstance(kind, str):
            raise refuse(f"{at}.type", "A tool needs a type, such as 'function'.")
        if kind == "function":
            yield convert(tool, Function, at), None, at
        elif kind == "namespace":
            namespace = convert(tool, _Namespace, at)
            for index, nested in enumerate(namespace.tools):
                inner = f"{at}.tools[{index}]"
                if nested.get("type") == "function":
                    yield convert(nested, Function, inner), namespace.name, inner
