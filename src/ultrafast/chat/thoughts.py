"""Takes the thoughts off the beginning of an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ultrafast.chat.answer import AnswerParser
from ultrafast.types import AnswerEnd, Piece, Thought, TokenDelta, TokenLogprob

BEGIN, END = "<think>", "</think>"
_SPACE = " \t\n\r"
_MAX_SPACE = 64  # before marks; what is longer is not held back


class ThoughtParser:
    """Of an answer that may begin with ``<think>`` … ``</think>``. Whitespace just inside the marks, and newlines after
    them, belong to neither thoughts nor answer.

    Args:
        answer: parser of the rest.
        begun: the prompt ends with ``<think>``.
    """

    def __init__(self, answer: AnswerParser, *, begun: bool) -> None:
        self._answer = answer
        self._take: Callable[[str], str] = self._thinking if begun else self._at_start  # gives what is the answer's
        self._held = ""  # whitespace, then perhaps the beginning of a mark
        self._thought: list[str] = []  # of this delta
        self._has_thought = begun
        self._has_words = False  # other than whitespace
        self._num_tokens = 0  # before the answer
        self._logprobs: list[TokenLogprob] = []  # of what is held at the start

    def push(self, delta: TokenDelta) -> list[Piece]:
        """See `AnswerParser`."""
        if self._take != self._in_answer:
            delta = self._answers_part(delta)
        pieces: list[Piece] = [Thought("".join(self._thought))] if self._thought else []
        self._thought.clear()
        if delta.text or delta.logprobs or delta.finish_reason is not None:
            pieces += self._answer.push(delta)
        if pieces and isinstance(pieces[-1], AnswerEnd):
            pieces[-1] = replace(pieces[-1], reasoning_tokens=self._num_tokens)
        return pieces

    def _answers_part(self, delta: TokenDelta) -> TokenDelta:
        """Of a delta that began before the answer did, or before that was known."""
        text = "".join(self._take(char) for char in delta.text)
        if delta.finish_reason is not None:
            text += self._finish()
        ids, logprobs = delta.token_ids, list(delta.logprobs or ())
        if self._has_thought:  # which token wrote which character is not known here: they share
            thoughts = len(ids) * (len(delta.text) - len(text)) // len(delta.text) if text else len(ids)
            self._num_tokens += thoughts
            return replace(delta, text=text, token_ids=ids[thoughts:], logprobs=logprobs[thoughts:] or None)
        self._logprobs += logprobs
        if self._take == self._at_start:
            self._num_tokens += len(ids)
            return replace(delta, text="", token_ids=[], logprobs=None)
        self._num_tokens = 0
        return replace(delta, text=text, logprobs=self._logprobs or None)

    # ---- what the next character may be ----

    def _at_start(self, char: str) -> str:
        mark = self._held.lstrip(_SPACE) + char
        if BEGIN.startswith(mark) or (char in _SPACE and len(mark) == 1 and len(self._held) < _MAX_SPACE):
            self._held += char
            if mark == BEGIN:
                self._held = ""
                self._has_thought = True
                self._take = self._thinking
            return ""
        self._take = self._in_answer
        held, self._held = self._held, ""
        return held + char

    def _thinking(self, char: str) -> str:
        mark = self._held.lstrip(_SPACE) + char
        if not (END.startswith(mark) or (char in _SPACE and len(mark) == 1 and len(self._held) < _MAX_SPACE)):
            self._think(self._held)
            self._held = ""
            if not (END.startswith(char) or char in _SPACE):
                self._think(char)
                return ""
        self._held += char
        if mark == END:
            self._held = ""
            self._take = self._after
        return ""

    def _after(self, char: str) -> str:
        if char == "\n":
            return ""
        self._take = self._in_answer
        return char

    def _in_answer(self, char: str) -> str:
        return char

    def _think(self, text: str) -> None:
        if not self._has_words:
            text = text.lstrip(_SPACE)
        if text:
            self._has_words = True
            self._thought.append(text)

    def _finish(self) -> str:
        """The answer ends: what is held is no mark."""
        held, self._held = self._held, ""
        if self._take == self._at_start:
            self._take = self._in_answer
            return held
        if not held.isspace():
            self._think(held)
        return ""
