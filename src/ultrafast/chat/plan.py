"""What a conversation with tools and an output format means to one model: its messages, its grammar, its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ultrafast.chat.abilities import Abilities, Render, find_abilities
from ultrafast.chat.answer import AnswerParser, PlainParser
from ultrafast.chat.calls import CallParser
from ultrafast.chat.fit import fit
from ultrafast.chat.grammar import Thoughts, answer_grammar
from ultrafast.chat.syntax import HERMES
from ultrafast.chat.thoughts import ThoughtParser
from ultrafast.errors import RequestError
from ultrafast.types import Message, OutputFormat, Tool, ToolChoice

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


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
        render: that template; None: assume a plain one, which writes down any role and content.
    """

    def __init__(self, template: str | None, render: Render | None = None) -> None:
        self._can = Abilities() if template is None or render is None else find_abilities(template, render)

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
        can = self._can
        callable_tools = _callable(tools, choice)
        described = [_nested(tool) for tool in tools] if callable_tools else []
        syntax = can.syntax or HERMES
        thoughts: Thoughts = "begun" if can.begins_thought else "optional" if can.thinks else "none"
        grammar = answer_grammar(syntax, callable_tools, choice, output, thoughts)
        fitted = fit(messages, can, () if can.syntax else described)
        names = frozenset(tool.name for tool in callable_tools)

        def parser() -> AnswerParser:
            answer = CallParser(syntax, names, streams=grammar is not None) if names else PlainParser()
            return answer if thoughts == "none" else ThoughtParser(answer, begun=thoughts == "begun")

        return ChatPlan(fitted, described or None if can.syntax else None, grammar, parser)


def _callable(tools: Sequence[Tool], choice: ToolChoice) -> list[Tool]:
    """The tools that an answer may call, after a look at their names."""
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if not _NAME.fullmatch(tool.name):
            raise RequestError(
                f"tools[{index}] is called {tool.name[:100]!r}; a name is 1 to 128 letters, digits, '_', '-' or '.'",
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
