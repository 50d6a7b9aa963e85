"""What a conversation with tools and an output format means to one model: its messages, its grammar, its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ultrafast.chat.answer import AnswerParser, PlainParser
from ultrafast.errors import RequestError
from ultrafast.types import Message, OutputFormat, Tool, ToolChoice


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
        if tools and choice.mode != "none":
            raise RequestError("calling tools is not supported yet", param="tools", code="unsupported_parameter")
        if output.kind != "text":
            raise RequestError(f"the output format {output.kind!r} is not supported yet", param="output")
        return ChatPlan(messages, None, None, PlainParser)
