"""An answer as it is read back from its events, whatever the API; the readers of each API fill it in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ultrafast.bench.client.call import Outcome, ServerTimes, TokenChance, ToolCall

Kind = Literal["answer", "thought", "tool"]

Tokens = Annotated[int, Meta(ge=0, le=2**53)]
"""A count in an event; beyond that it is nonsense, and no float."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding bytes from a server may raise."""

MAX_MESSAGE = 500  # characters of a server's message that are kept


@dataclass(slots=True)
class Piece:
    """What one event added.

    Attributes:
        text: of the answer or thought; of a tool call, its name or arguments.
        counted: output tokens up to and with this event, as the server states them.
    """

    at_s: float
    kind: Kind
    text: str
    counted: int | None = None


@dataclass(slots=True)
class Answer:
    """What the events told.

    Attributes:
        ended_s: when its proper end was read; ``None``: it never came.
        failure: why there is no whole answer, as an outcome and a message.
        calls: tool calls by whatever tells them apart in the stream, in order.
    """

    pieces: list[Piece] = field(default_factory=list)
    ended_s: float | None = None
    failure: tuple[Outcome, str] | None = None
    status: int | None = None  # of an error that came as an event
    finish_reason: str | None = None
    tier: str | None = None
    model: str | None = None
    id: str | None = None
    fingerprint: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    server: ServerTimes = field(default_factory=ServerTimes)
    calls: dict[str | int, ToolCall] = field(default_factory=dict)
    logprobs: list[TokenChance] = field(default_factory=list)

    def text(self, kind: Kind) -> str:
        """All of one kind, joined."""
        return "".join(piece.text for piece in self.pieces if piece.kind == kind)

    def add_call(self, key: str | int, *, id: str = "", name: str = "", arguments: str = "") -> None:
        """What an event adds to a tool call; the call begins with the first word of it."""
        so_far = self.calls.get(key, ToolCall("", "", ""))
        self.calls[key] = ToolCall(so_far.id or id, so_far.name + name, so_far.arguments + arguments)


class OwnMeasures(msgspec.Struct):
    """The object ``ultrafast`` of our own server's answers."""

    queue_ms: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    drafted_tokens: Tokens | None = None
    accepted_tokens: Tokens | None = None

    def times(self) -> ServerTimes:
        """The same in seconds."""
        return ServerTimes(
            seconds(self.queue_ms),
            seconds(self.prefill_ms),
            seconds(self.decode_ms),
            self.drafted_tokens,
            self.accepted_tokens,
        )


def seconds(milliseconds: float | None) -> float | None:
    """Milliseconds, if any, as seconds."""
    return None if milliseconds is None else milliseconds / 1e3


def message_of(error: Any) -> str:
    """The words in a decoded error, in any of the shapes that servers use, bounded."""
    words = error
    for name in ("error", "message", "detail"):
        if isinstance(words, dict) and words.get(name):
            words = words[name]
    if not isinstance(words, str):
        words = msgspec.json.encode(words).decode()
    return bounded(words)


def bounded(text: str) -> str:
    """One line of a bounded length."""
    line = " ".join(text[: 4 * MAX_MESSAGE].split())
    return line if len(line) <= MAX_MESSAGE else line[:MAX_MESSAGE] + "…"


def malformed(data: bytes, error: Exception) -> tuple[Outcome, str]:
    """The failure of a stream with an event that cannot be read."""
    shown = bounded(data[:200].decode(errors="replace"))
    return Outcome.BROKEN, f"an event of the stream is malformed ({bounded(str(error))}): {shown}"
