"""Finds the tool calls in an answer as it comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Literal

from ultrafast.chat.json_scan import NotJsonError, ObjectScanner
from ultrafast.chat.pieces import PieceList
from ultrafast.chat.syntax import CallSyntax
from ultrafast.types import AnswerEnd, CallArguments, CallBegin, CallEnd, FinishReason, Piece, Text, TokenDelta

_ARGUMENTS = ("arguments", "parameters")  # models mix them up
_KEYS = ("name", *_ARGUMENTS, "id", "type")  # an object with others is no call
_SPACE = " \t\n\r"
_SEPARATORS = _SPACE + ",;]"  # what may follow a call's object
_SURE = 2  # characters of arguments until they are given: `{"` and `{}` are more likely to end well than `{`
_MAX_SPACE = 64  # before and after marks; what is longer is not held back


class CallParser:
    """Of an answer in which tools may be called. It takes one character after the other, so it does not matter how the
    text is split.

    What looks like a call and is none (broken JSON, a tool that is not on offer, no arguments) is text. Whitespace
    before a call, and between calls, is no text.

    Args:
        syntax: of the calls.
        names: of the tools on offer.
        streams: give arguments as they come, which is for answers that a grammar keeps well-formed. Otherwise they
            wait for the end of their call, so that a call which turns out to be broken can still be text.
    """

    def __init__(self, syntax: CallSyntax, names: Collection[str], *, streams: bool) -> None:
        self._opening = syntax.mark
        self._closing = syntax.closing.strip()
        self._listed = syntax.listed
        self._names = names
        self._streams = streams
        self._out = PieceList()
        self._held = ""  # what may become a call, or the marks around it
        self._object = ObjectScanner()
        self._call: Literal["unknown", "begun", "complete"] = "unknown"  # whether the object is a call
        self._num_calls = 0  # complete ones
        self._follows_call = False  # nothing but whitespace came since a call
        self._take: Callable[[str], None] = self._in_text if self._opening else self._at_start

    def push(self, delta: TokenDelta) -> list[Piece]:
        """See `AnswerParser`."""
        self._out.start(delta.logprobs)
        for char in delta.text:
            self._take(char)
        if delta.finish_reason is None:
            return self._out.give()
        between_calls = self._follows_call and (self._take == self._after_object or self._held.isspace())
        if not (between_calls or self._is_cut_open(delta.finish_reason)):
            self._release()
        return [*self._out.give(last=True), AnswerEnd(self._reason(delta.finish_reason), delta.stop)]

    def _is_cut_open(self, finish: FinishReason) -> bool:
        """Whether the limit cut a call of which nothing but its mark is certain: what there is of it is of no use."""
        is_open = self._take in (self._after_opening, self._in_object) and self._call == "unknown"
        return bool(self._opening) and is_open and finish is FinishReason.LENGTH

    def _reason(self, finish: FinishReason) -> Literal["stop", "length", "tool_calls"]:
        if finish is FinishReason.LENGTH:
            return "length"
        is_cut = self._take == self._in_object and self._call == "begun"
        return "tool_calls" if self._num_calls and finish is FinishReason.STOP and not is_cut else "stop"

    # ---- what the next character may be ----

    def _in_text(self, char: str) -> None:
        """Whitespace and a mark, both held back, or more text."""
        mark = self._held.lstrip(_SPACE) + char
        if char in _SPACE and (len(mark) > 1 or len(self._held) == _MAX_SPACE):
            self._release()
        elif char not in _SPACE and not self._opening.startswith(mark):
            self._release()
            if not self._opening.startswith(char):
                self._say(char)
                return
        self._held += char
        if mark == self._opening:
            self._take = self._after_opening

    def _at_start(self, char: str) -> None:
        """A call that no mark announces, or text."""
        if char in _SPACE and len(self._held) < _MAX_SPACE:
            self._held += char
        else:
            self._take = self._after_opening
            self._take(char)

    def _in_rest(self, char: str) -> None:
        self._say(char)

    def _after_opening(self, char: str) -> None:
        if char == "{":
            self._object = ObjectScanner()
            self._call = "unknown"
            self._take = self._in_object
            self._take(char)
        elif (char in _SPACE and len(self._held) < _MAX_SPACE) or (
            char == "[" and self._listed and "[" not in self._held
        ):
            self._held += char
        else:
            self._not_a_call(char)

    def _in_object(self, char: str) -> None:
        scanner = self._object
        try:
            scanner.take(char)
        except NotJsonError:
            self._leave_object()
            self._take(char)
            return
        if self._call == "unknown":
            if scanner.key not in (None, *_KEYS) or not self._may_be_offered():
                self._not_a_call("")
            elif self._streams and scanner.key in _ARGUMENTS and scanner.value_size == _SURE and self._name():
                arguments = scanner.value
                if arguments.startswith("{"):
                    self._begin(arguments)
        elif self._call == "begun":
            self._out.add(CallArguments(char))
        if self._call == "begun" and scanner.key in scanner.members:
            self._complete()
        if scanner.done:
            self._leave_object()

    def _after_object(self, char: str) -> None:
        """The next object, the closing mark, or separators before them."""
        mark = self._held.lstrip(_SEPARATORS)
        if not mark and char == "{":
            self._after_opening(char)
        elif (not mark and char in _SEPARATORS and len(self._held) < _MAX_SPACE) or (
            self._closing and self._closing.startswith(mark + char)
        ):
            self._held += char
            if mark + char == self._closing:
                self._held = ""
                self._take = self._in_text
        else:
            held, self._held = self._held, ""
            self._take = self._in_text if self._opening else self._in_rest
            for other in held + char:
                self._take(other)

    # ---- what it was ----

    def _name(self) -> str | None:
        """Of the tool, when that is known and on offer."""
        name = json.loads(self._object.members.get("name", "null"))
        return name if isinstance(name, str) and name in self._names else None

    def _may_be_offered(self) -> bool:
        return "name" not in self._object.members or self._name() is not None

    def _begin(self, arguments: str) -> None:
        self._held = ""
        self._call = "begun"
        self._out.add(CallBegin(self._name() or ""))
        self._out.add(CallArguments(arguments))

    def _complete(self) -> None:
        self._out.add(CallEnd())
        self._call = "complete"
        self._num_calls += 1

    def _leave_object(self) -> None:
        """The object is complete, or goes on as no JSON does."""
        if self._call == "unknown":
            values = (self._object.members.get(key, "") for key in _ARGUMENTS)
            arguments = next((value for value in values if value.startswith("{")), None)
            if arguments is not None and self._name():
                self._begin(arguments)
                self._complete()
        if self._call == "complete":
            self._follows_call = True
            self._take = self._after_object
        else:
            self._not_a_call("")

    def _not_a_call(self, char: str) -> None:
        """What is held is text after all; ``char`` comes next."""
        self._release()
        self._take = self._in_text if self._opening else self._in_rest
        if char:
            self._take(char)

    def _release(self) -> None:
        held, self._held = self._held, ""
        if self._take == self._in_object and self._call == "unknown":
            held += self._object.text
        self._say(held)

    def _say(self, text: str) -> None:
        if text:
            self._out.add(Text(text))
            self._follows_call = False
