"""Token ids to text as they come: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import NamedTuple

from ultrafast.models.tokenizer import Tokenizer


class Pushed(NamedTuple):
    """What pushing some tokens gave."""

    text: str  # safe to send
    num_tokens: int  # how many of the tokens were used: all, unless a stop string ended the text
    stopped: bool  # a stop string was completed by token ``num_tokens`` (counted from 1)


class Detokenizer:
    """The text of one answer, piece by piece.

    The pieces, with `flush` at the end, add up to ``tokenizer.decode(ids, skip_special=True)``, cut before the first
    stop string. First is the one that is complete first; of several that end with the same character, the one that
    starts first. Text that may be the start of a stop string is held back until that is settled, as are the bytes of
    an unfinished character. Stop strings must not be empty.

    Each token costs time in proportion to its own bytes (and the longest stop string), not to the text so far.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = tokenizer.strips_leading_space
        self._stops = tuple(stop)
        self._firsts = {text[0] for text in stop}
        self._longest = max(map(len, stop), default=0)
        self._held = ""  # the end of the text so far that a stop string may begin in
        self.stop: str | None = None  # the stop string that ended the text: by a token, or in `flush`

    def push(self, token_ids: Sequence[int]) -> Pushed:
        """Take tokens and give the text that is now certain. After a stop nothing more is taken."""
        pieces: list[str] = []
        for num_tokens, token_id in enumerate(token_ids, 1):
            if self.stop is not None:
                return Pushed("".join(pieces), num_tokens - 1, True)
            if not self._tokenizer.is_special(token_id):
                pieces.append(self._take(self._decoder.decode(self._tokenizer.token_bytes(token_id))))
        return Pushed("".join(pieces), len(token_ids), self.stop is not None)

    def flush(self) -> str:
        """The text still held back, for when the answer ends for another reason: the beginning of a stop string that
        never came, U+FFFD for an unfinished character. A stop string may be found even now, and is cut off."""
        if self.stop is not None:
            return ""
        text = self._take(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return text + (held if self.stop is None else "")

    def _take(self, new: str) -> str:
        """Add decoded text; return what can no longer become part of a stop string."""
        if self._at_start and new:
            new = new.removeprefix(" ")
            self._at_start = False
        if not self._stops or not new:
            return new
        text = self._held + new
        if (found := self._find_stop(text)) is not None:
            cut, self.stop = found
            self._held = ""
            return text[:cut]
        keep = self._possible_start(text)
        self._held = text[keep:]
        return text[:keep]

    def _find_stop(self, text: str) -> tuple[int, str] | None:
        """Where the first stop string to be complete begins, and which it is."""
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        return min(found)[1:] if found else None

    def _possible_start(self, text: str) -> int:
        """The first position from which all remaining text is the beginning of some stop string."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[at] in self._firsts and any(stop.startswith(text[at:]) for stop in self._stops):
                return at
        return len(text)
