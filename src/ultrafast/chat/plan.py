"""What a conversation with tools and an output format means to one model: its messages, its grammar, its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ultrafast.chat.answer import AnswerParser, PlainParser
from ultrafast.chat.calls import CallParser
from ultrafast.chat.generic import describe, with_instructions, without_tool_messages
from ultrafast.chat.syntax import HERMES
from ultrafast.errors import RequestError
from ultrafast.types import Message, OutputFormat, Tool, ToolChoice

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """How a conversation is put to the model.

    Attributes:
        messages: for the chat template.
        tools: for the chat template, where it knows tools: ``{"type": "function", "function": {…}}`` each.
        grammar: of the output, in the words of `engine.grammar`; None: anything.
        parser: makes the parser of one answer.
    """

    messages: Sequence[Message]
    tools: Sequence[dict[str, Any]] | None
    grammar: str | None
    parser: Callable[[], AnswerParser]


class ChatFormat:
    """How one model writes tool calls and thoughts.

    Args:
        template: source of its chat template, or None.
    """

    def __init__(self, template: str | None) -> None:
        self._template = template

    def plan(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        choice: ToolChoice = ToolChoice(),  # noqa: B008 (immutable)
        output: OutputFormat = OutputFormat(),  # noqa: B008 (immutable)
    ) -> ChatPlan:
        """Plan an answer.

        Args:
            messages: roles ``system``, ``user``, ``assistant`` and ``tool``, content a string each. An assistant
                message may carry ``tool_calls``: ``{"id", "type": "function", "function": {"name", "arguments"}}``
                with the arguments as JSON text, and ``reasoning_content``; a tool message has ``tool_call_id``.
            tools: on offer.
            choice: whether they are called.
            output: what the text is.

        Raises:
            RequestError: ``param`` is ``tools``, ``tool_choice``, ``output`` or ``messages``.
        """
        callable_tools = _callable(tools, choice)
        if output.kind != "text":
            raise RequestError(f"the output format {output.kind!r} is not supported yet", param="output")
        messages = without_tool_messages(messages)
        if not callable_tools:
            return ChatPlan(messages, None, None, PlainParser)
        messages = with_instructions(messages, describe([_nested(tool) for tool in tools]))
        names = frozenset(tool.name for tool in callable_tools)
        return ChatPlan(messages, None, None, partial(CallParser, HERMES, names, streams=True))


def _callable(tools: Sequence[Tool], choice: ToolChoice) -> list[Tool]:
    """The tools that an answer may call, after a look at their names."""
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if not _NAME.fullmatch(tool.name):
            raise RequestError(
                f"tools[{index}] is called {tool.name[:100]!r}; a name is 1 to 64 letters, digits, '_', '-' or '.'",
                param="tools",
            )
        if tool.name in names:
            raise RequestError(f"two tools are called {tool.name!r}", param="tools")
        names.add(tool.name)
    if choice.mode == "none":
        return []
    unknown = next((name for name in choice.names if name not in names), None)
    if unknown is not None:
        raise RequestError(f"there is no tool {unknown[:100]!r} among the tools", param="tool_choice")
    if choice.mode == "required" and not tools:
        raise RequestError("a tool is to be called, but there are no tools", param="tool_choice")
    return [tool for tool in tools if not choice.names or tool.name in choice.names]


def _nested(tool: Tool) -> dict[str, Any]:
    """As templates expect it."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}
