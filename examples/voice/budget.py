"""How many tokens fit before speech must start, and when speech has to wait for more of them. Arithmetic, no clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

CLAUSE_TOKENS = 12  # of a clause without punctuation: enough to begin to speak
WORDS_PER_MINUTE = 150.0
_CLAUSE_END = re.compile(r"[.!?;:,…]")

Piece = tuple[float, str]
"""Seconds at which a piece of text came, and the piece."""


@dataclass(frozen=True)
class Pipeline:
    """What a turn takes beside the model, in seconds; the defaults are assumptions, and options of the program.

    Attributes:
        endpointing_s: silence until the caller is taken to have finished.
        transcript_s: until the last words are text.
        voice_s: from a clause to its first sound.
        network_s: to the caller and back.
    """

    endpointing_s: float = 0.3
    transcript_s: float = 0.1
    voice_s: float = 0.1
    network_s: float = 0.075

    @property
    def before_s(self) -> float:
        """Until the model has the caller's words."""
        return self.endpointing_s + self.transcript_s + self.network_s / 2

    @property
    def after_s(self) -> float:
        """From the first clause until the caller hears it."""
        return self.voice_s + self.network_s / 2

    def window_s(self, patience_s: float) -> float:
        """What is left for the model of the silence that a caller bears."""
        return max(0.0, patience_s - self.before_s - self.after_s)


def tokens_in(window_s: float, tokens_per_s: float, *, ttft_s: float = 0.0) -> int:
    """Whole tokens that come within a window, the first of them after ``ttft_s``."""
    return int(max(0.0, window_s - ttft_s) * tokens_per_s + 1e-9)


def thinking_tokens(window_s: float, tokens_per_s: float, *, ttft_s: float, clause: int = CLAUSE_TOKENS) -> int:
    """Tokens that may be thought within the window, when it must also bring a clause to speak; below 0: it cannot."""
    return tokens_in(window_s, tokens_per_s, ttft_s=ttft_s) - clause


def speech_tokens_per_s(tokens_per_word: float, *, words_per_minute: float = WORDS_PER_MINUTE) -> float:
    """Tokens that a voice speaks in a second; 1.25 to 1.67 tokens are a word of English."""
    return words_per_minute / 60 * tokens_per_word


def first_clause_s(pieces: Sequence[Piece], tokens: Sequence[int]) -> float | None:
    """When there was something to speak: text with punctuation, or `CLAUSE_TOKENS`; None: not yet.

    Args:
        pieces: of the answer, in order; thoughts are no part of it.
        tokens: of the answer that had come with each piece.
    """
    for (at, text), count in zip(pieces, tokens, strict=True):
        if _CLAUSE_END.search(text) or count >= CLAUSE_TOKENS:
            return at
    return None


@dataclass(frozen=True)
class Playback:
    """An answer as it was heard.

    Attributes:
        underruns: when the voice fell silent for want of text, and for how long, in seconds.
        end_s: when it had said all.
    """

    underruns: list[tuple[float, float]]
    end_s: float


def play(pieces: Sequence[Piece], start_s: float, *, words_per_minute: float = WORDS_PER_MINUTE) -> Playback:
    """Speak the words as they come: each lasts as long as the speaking rate says, and waits for its text.

    Args:
        pieces: of the answer, in order.
        start_s: when the voice begins.
    """
    word_s = 60 / words_per_minute
    said_until = start_s
    underruns: list[tuple[float, float]] = []
    for at in _words(pieces):
        if at > said_until + 1e-9:
            underruns.append((said_until, at - said_until))
            said_until = at
        said_until += word_s
    return Playback(underruns, said_until)


def _words(pieces: Sequence[Piece]) -> list[float]:
    """When each word was whole: at the space after it, or with the last piece."""
    ends: list[float] = []
    in_word = False
    for at, text in pieces:
        for character in text:
            if character.isspace() and in_word:
                ends.append(at)
            in_word = not character.isspace()
    if in_word:
        ends.append(pieces[-1][0])
    return ends
