"""Collects the pieces of one delta."""

from __future__ import annotations

from collections.abc import Sequence

from ultrafast.types import CallArguments, Piece, Text, TokenLogprob


class PieceList:
    """Pieces in order, neighbours of one kind made one.

    Log-probabilities go with the first text of their delta. Those of a delta without text wait for the next text; from
    where a call begins to the next text, they are the call's, and dropped.
    """

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._kind: type[Text] | type[CallArguments] | None = None  # of the piece that still grows
        self._parts: list[str] = []
        self._after_call = False  # no text came since
        self._waiting: list[TokenLogprob] = []
        self._new: list[TokenLogprob] = []

    def start(self, logprobs: Sequence[TokenLogprob] | None) -> None:
        """A delta begins."""
        self._new = list(logprobs or ())

    def add(self, piece: Piece) -> None:
        if isinstance(piece, (Text, CallArguments)):
            if self._kind is not type(piece):
                self._end_piece()
                self._kind = type(piece)
            self._parts.append(piece.text)
        else:
            self._end_piece()
            self._pieces.append(piece)
            self._waiting, self._after_call = [], True

    def give(self, *, last: bool = False) -> list[Piece]:
        """The pieces since the last time.

        Args:
            last: no text comes any more.
        """
        self._end_piece()
        pieces, self._pieces = self._pieces, []
        if not self._after_call:
            self._waiting += self._new
        if last and self._waiting:
            pieces.append(Text("", self._waiting))
        return pieces

    def _end_piece(self) -> None:
        text = "".join(self._parts)
        if self._kind is Text:
            self._pieces.append(Text(text, [*self._waiting, *self._new] or None))
            self._waiting, self._new, self._after_call = [], [], False
        elif self._kind is CallArguments:
            self._pieces.append(CallArguments(text))
        self._kind, self._parts = None, []
