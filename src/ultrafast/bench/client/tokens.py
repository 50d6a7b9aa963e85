"""How many tokens each event of an answer held: stated by the server, recounted by us, or estimated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from ultrafast.bench.client.answer import Answer, Piece
from ultrafast.bench.client.call import Chunk, TokenSource

Count = Callable[[str], int]
"""How many tokens a text has."""


def chunks_of(answer: Answer, count: Count | None) -> tuple[list[Chunk], TokenSource]:
    """The events of an answer with their tokens, and where these are known from.

    Args:
        count: recounts the text with a tokenizer of the caller's choice, so that speeds compare across models.
    """
    pieces = answer.pieces
    if count is not None:
        recounted = count("".join(piece.text for piece in pieces)) if pieces else 0
        return _chunks(pieces, _shares(recounted, [count(piece.text) for piece in pieces])), "recounted"
    stated = _stated(pieces)
    if stated is not None:
        return _chunks(pieces, stated), "chunks"
    total = _visible(answer)
    if total is not None:
        return _chunks(pieces, _shares(total, [len(piece.text) for piece in pieces])), "estimated"
    return _chunks(pieces, [0.0] * len(pieces)), "unknown"


def _chunks(pieces: Sequence[Piece], tokens: Sequence[float]) -> list[Chunk]:
    return [
        Chunk(piece.at_s, number, piece.kind, len(piece.text)) for piece, number in zip(pieces, tokens, strict=True)
    ]


def _stated(pieces: Sequence[Piece]) -> list[float] | None:
    """The growth of the server's count with each event. ``None`` where not every event has a count that can be one:
    some servers put it on their last event only, or zeros on all the others."""
    counts = [piece.counted for piece in pieces if piece.counted is not None]
    if not counts or len(counts) != len(pieces) or counts[0] == 0 or counts != sorted(counts):
        return None
    return [float(after - before) for before, after in pairwise([0, *counts])]


def _visible(answer: Answer) -> int | None:
    """The tokens of what was shown: reasoning is part of the output even where no word of it is sent."""
    if answer.output_tokens is None:
        return None
    is_shown = any(piece.kind == "thought" for piece in answer.pieces)
    return max(0, answer.output_tokens - (0 if is_shown else answer.reasoning_tokens or 0))


def _shares(total: int, weights: Sequence[int]) -> list[float]:
    """A total in proportion to weights; no event weighs nothing."""
    positive = [max(1, weight) for weight in weights]
    share = total / sum(positive) if positive else 0.0
    return [share * weight for weight in positive]
