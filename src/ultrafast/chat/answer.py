"""The text of an answer, taken apart as it comes: what the user reads, thoughts, tool calls."""

from __future__ import annotations

from typing import Protocol

from ultrafast.types import AnswerEnd, FinishReason, Piece, Text, TokenDelta


class AnswerParser(Protocol):
    """Takes the deltas of one answer in order and tells what they mean."""

    def push(self, delta: TokenDelta) -> list[Piece]:
        """The pieces that are now certain; with the last delta, all that is left and an `AnswerEnd`."""
        ...


class PlainParser:
    """Of an answer that is text and nothing else."""

    def push(self, delta: TokenDelta) -> list[Piece]:
        pieces: list[Piece] = []
        if delta.text or delta.logprobs:
            pieces.append(Text(delta.text, delta.logprobs))
        if delta.finish_reason is not None:
            pieces.append(AnswerEnd("length" if delta.finish_reason is FinishReason.LENGTH else "stop", delta.stop))
        return pieces
