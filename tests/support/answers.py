"""Text through an answer parser, in the pieces a test wants."""

from __future__ import annotations

from collections.abc import Iterable

from ultrafast.chat.answer import AnswerParser
from ultrafast.types import CallArguments, FinishReason, Piece, Text, Thought, TokenDelta


def cut(text: str, size: int) -> list[str]:
    """``text`` in parts of so many characters, the last one perhaps shorter."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def parse(parser: AnswerParser, parts: Iterable[str], finish: FinishReason = FinishReason.STOP) -> list[Piece]:
    """All pieces of an answer, neighbours of one kind made one; each part is a delta of one token."""
    pieces: list[Piece] = []
    for part in parts:
        pieces += parser.push(TokenDelta(part, [0]))
    return merged([*pieces, *parser.push(TokenDelta("", [], None, finish))])


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Neighbours of one kind made one; log-probabilities are left out."""
    out: list[Piece] = []
    for piece in pieces:
        kind = type(piece)
        if isinstance(piece, (Text, Thought, CallArguments)) and out and type(out[-1]) is kind:
            piece = kind(out.pop().text + piece.text)  # type: ignore[union-attr]
        elif isinstance(piece, Text):
            piece = Text(piece.text)
        if not (isinstance(piece, Text) and not piece.text):
            out.append(piece)
    return out
