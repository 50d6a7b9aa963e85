"""A chat format of plain marks, for answers whose pieces a test chooses: ``<think>…</think>``, ``<call name>…</call>``.

Give one to a scripted engine as its ``chat``; it keeps what it was asked to plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from support.scripted_engine import ScriptedEngine
from ultrafast.chat.plan import ChatPlan
from ultrafast.errors import RequestError
from ultrafast.types import (
    AnswerEnd,
    CallArguments,
    CallBegin,
    CallEnd,
    FinishReason,
    Message,
    OutputFormat,
    Piece,
    Text,
    Thought,
    TokenDelta,
    Tool,
    ToolChoice,
)

_MARK = re.compile(r"<(?P<end>/?)(?P<kind>think|call)(?: (?P<name>\w+))?>")


@dataclass
class Planned:
    messages: Sequence[Message]
    tools: Sequence[Tool]
    choice: ToolChoice
    output: OutputFormat


class MarkedChat:
    """Args:
    refuse_strict: names of functions whose schemas it claims not to understand.
    """

    def __init__(self, refuse_strict: Sequence[str] = ()) -> None:
        self.planned: list[Planned] = []
        self._refuse_strict = refuse_strict

    def plan(
        self, messages: Sequence[Message], *, tools: Sequence[Tool], choice: ToolChoice, output: OutputFormat
    ) -> ChatPlan:
        for tool in tools:
            if tool.strict and tool.name in self._refuse_strict:
                raise RequestError(f"the schema of {tool.name} is beyond us", param="tools")
        self.planned.append(Planned(messages, tools, choice, output))
        return ChatPlan(messages, None, None, MarkedParser)


class MarkedParser:
    def __init__(self) -> None:
        self._held = ""
        self._inside: str | None = None
        self._called = False
        self._thoughts = 0

    def push(self, delta: TokenDelta) -> list[Piece]:
        self._held += delta.text
        pieces: list[Piece] = []
        while mark := _MARK.search(self._held):
            pieces += self._plain(self._held[: mark.start()], delta)
            self._held = self._held[mark.end() :]
            pieces += self._marked(mark)
        last = delta.finish_reason is not None
        sure = len(self._held) if last or "<" not in self._held else self._held.index("<")
        pieces += self._plain(self._held[:sure], delta)
        self._held = self._held[sure:]
        if last:
            pieces.append(self._end(delta))
        return pieces

    def _plain(self, text: str, delta: TokenDelta) -> list[Piece]:
        if self._inside == "think":
            self._thoughts += len(text.encode())
            return [Thought(text)] if text else []
        if self._inside == "call":
            return [CallArguments(text)] if text else []
        return [Text(text, delta.logprobs)] if text else []

    def _marked(self, mark: re.Match[str]) -> list[Piece]:
        self._inside = None if mark["end"] else mark["kind"]
        if mark["kind"] == "think":
            return []
        self._called = True
        return [CallEnd()] if mark["end"] else [CallBegin(mark["name"])]

    def _end(self, delta: TokenDelta) -> AnswerEnd:
        if delta.finish_reason is FinishReason.LENGTH:
            return AnswerEnd("length", reasoning_tokens=self._thoughts)
        return AnswerEnd("tool_calls" if self._called else "stop", reasoning_tokens=self._thoughts)


def marked_engine(*scripts: str, refuse_strict: Sequence[str] = (), **options: Any) -> Any:
    """A scripted engine whose scripts, one a request, have marks."""
    engine: Any = ScriptedEngine(scripts=scripts, **options)
    engine.chat = MarkedChat(refuse_strict)
    return engine
