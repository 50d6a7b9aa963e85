"""Log-probabilities as Completions has them: in columns, tokens as text, with their places in the text."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ultrafast.serving.wire.logprobs import sayable
from ultrafast.types import TokenLogprob


class Tokenizer(Protocol):
    """What Completions needs of one."""

    bos_id: int | None
    strips_leading_space: bool

    def token_bytes(self, id: int) -> bytes: ...

    def is_special(self, id: int) -> bool: ...

    def decode(self, ids: Iterable[int]) -> str: ...


class CompletionLogprobs:
    """Collects the tokens of one choice: those of the prompt first, where it is echoed."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._places = _Places()
        self._empty()

    def add_prompt(self, ids: Sequence[int], logprobs: Sequence[TokenLogprob], sent: str | Sequence[int]) -> None:
        """The prompt's tokens.

        Args:
            ids: all of them.
            logprobs: of all but the first, before which there is nothing that it could be likely after.
            sent: the prompt as it was sent, which is how it is echoed.
        """
        self._places.at_start = self._tokenizer.strips_leading_space
        first = self._tokenizer.token_bytes(ids[0])
        # The beginning-of-sequence token is added to a text: it is a token of the prompt, and not in what was sent.
        is_added = isinstance(sent, str) and ids[0] == self._tokenizer.bos_id and not sent.encode().startswith(first)
        self._add(ids[0], None, is_shown=not is_added)
        for item in logprobs:
            self._add(item.token_id, item)
        self._places.end_text()

    def add_output(self, logprobs: Sequence[TokenLogprob]) -> None:
        """Tokens of the completion."""
        for item in logprobs:
            self._add(item.token_id, item, is_shown=not self._tokenizer.is_special(item.token_id))

    def take(self) -> dict[str, Any]:
        """The ``logprobs`` object of what came since the last time."""
        taken = self._columns
        self._empty()
        return taken

    def _empty(self) -> None:
        self._columns: dict[str, list[Any]] = {
            name: [] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        }

    def _add(self, token_id: int, item: TokenLogprob | None, *, is_shown: bool = True) -> None:
        raw = self._tokenizer.token_bytes(token_id)
        self._columns["tokens"].append(token_text(raw))
        self._columns["token_logprobs"].append(None if item is None else sayable(item.logprob))
        self._columns["top_logprobs"].append(None if item is None else self._alternatives(item))
        self._columns["text_offset"].append(self._places.next(raw if is_shown else b""))

    def _alternatives(self, item: TokenLogprob) -> dict[str, float]:
        """The most likely tokens, and the one that stands there in any case."""
        alternatives: dict[str, float] = {}
        for token_id, logprob in [*item.top, (item.token_id, item.logprob)]:
            alternatives.setdefault(token_text(self._tokenizer.token_bytes(token_id)), sayable(logprob))
        return alternatives


class _Places:
    """Where each token begins in the text, in characters.

    Attributes:
        at_start: the next text loses a leading space.
    """

    def __init__(self) -> None:
        self.at_start = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._place = 0

    def next(self, raw: bytes) -> int:
        """The place of a token; of one that is not in the text, where it would be."""
        place = self._place
        self._advance(self._decoder.decode(raw))
        return place

    def end_text(self) -> None:
        """The prompt is over: its text and the completion's are each decoded for themselves."""
        self._advance(self._decoder.decode(b"", final=True))

    def _advance(self, text: str) -> None:
        if text and self.at_start:
            text = text.removeprefix(" ")
            self.at_start = False
        self._place += len(text)


def token_text(raw: bytes) -> str:
    """A token as text; one that is no whole characters, byte by byte: no two such tokens look the same."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
