"""One request and what came of it: what is asked, and the record that every measurement is computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

TokenSource = Literal["chunks", "estimated", "recounted", "unknown"]
"""Where token counts a chunk come from: usage that the server states with every chunk; the final usage, spread over the
chunks by their text; a tokenizer of ours, over the text; nowhere."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, whatever the API: `prompt` is text (one user message, where the API takes messages) or messages as
    Chat Completions has them. ``None`` leaves a field out; `extra` is merged into the body as it is."""

    prompt: str | Sequence[Mapping[str, Any]]
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()  # as Chat Completions has them
    tool_choice: str | Mapping[str, Any] | None = None  # as Chat Completions has it
    json_schema: Mapping[str, Any] | None = None  # a strict schema for the answer
    top_logprobs: int | None = None  # log-probabilities of each token and of so many of the most likely ones
    extra: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str | int | float] = field(default_factory=dict)  # copied to the `Call`, never sent


class Outcome(StrEnum):
    """How a call ended. All but `OK` count inside percentiles, as calls that took for ever."""

    OK = "ok"
    REFUSED = "refused"  # 429 or 503: no capacity
    ERROR = "error"  # any other status that is not 2xx, or an error event
    TIMEOUT = "timeout"  # no end within the limit
    BROKEN = "broken"  # the connection failed, or the stream ended without an end
    CANCELLED = "cancelled"  # we stopped it


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event with a piece of the answer: when it was read, and what it held.

    Attributes:
        at_s: seconds on the clock of the run.
        tokens: how many tokens (`Call.token_source` says how this is known; estimates are fractions).
        kind: of what: the answer, thinking shown before it, or a tool call.
        characters: of text: of `Call.text` and `Call.thoughts`, each chunk holds the next ones.
    """

    at_s: float
    tokens: float
    kind: Literal["answer", "thought", "tool"] = "answer"
    characters: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str  # JSON text, as it came


@dataclass(frozen=True, slots=True)
class TokenChance:
    """A token of the answer and what else might have stood there, with natural logarithms of probabilities."""

    token: str
    logprob: float
    top: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """What the server itself says of a request, in seconds; ``None`` where it does not."""

    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None


@dataclass(slots=True)
class Call:
    """The record of one request. Times are seconds on the run's monotonic clock, ``None`` where it did not get there.

    Opening chunks that carry no text, thought or tool call (a role, say) are no first token.

    Attributes:
        intended_s: when it was meant to be sent: later than that, the client or the cap on requests in flight is late.
        sent_s: when its first byte was handed to the connection; opening one is not yet sending.
        first_byte_s: first byte of the answer's body.
        first_token_s: first chunk with a token of any kind, thoughts too.
        first_answer_s: first chunk with text of the answer proper or a tool call.
        last_token_s: last chunk with a token.
        done_s: the whole answer was there, or the call had failed.
        output_tokens: all that were generated, reasoning included; what is billed.
        tier_served: ``service_tier`` of the answer's last word on it.
    """

    id: str
    tags: Mapping[str, str | int | float]
    tier_asked: str | None
    intended_s: float
    sent_s: float | None = None
    first_byte_s: float | None = None
    first_token_s: float | None = None
    first_answer_s: float | None = None
    last_token_s: float | None = None
    done_s: float | None = None
    chunks: Sequence[Chunk] = ()
    outcome: Outcome = Outcome.OK
    status: int | None = None
    error: str | None = None
    finish_reason: str | None = None
    tier_served: str | None = None
    model_served: str | None = None
    response_id: str | None = None
    fingerprint: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    token_source: TokenSource = "unknown"
    server: ServerTimes = ServerTimes()
    text: str = ""
    thoughts: str = ""
    tool_calls: Sequence[ToolCall] = ()
    logprobs: Sequence[TokenChance] = ()  # of the answer's tokens, where `Ask.top_logprobs` asked for them

    @property
    def is_ok(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from the *intended* start: a client that waits to send hides nothing."""
        return None if self.first_token_s is None else self.first_token_s - self.intended_s

    @property
    def ttfat_s(self) -> float | None:
        """Time to the first token of the answer proper, from the intended start: thinking is part of it."""
        return None if self.first_answer_s is None else self.first_answer_s - self.intended_s

    @property
    def e2e_s(self) -> float | None:
        """From the intended start to the end."""
        return None if self.done_s is None else self.done_s - self.intended_s

    @property
    def lag_s(self) -> float | None:
        """How much later than intended it was sent."""
        return None if self.sent_s is None else self.sent_s - self.intended_s

    @property
    def output_speed(self) -> float | None:
        """Tokens a second after the first chunk: those of later chunks, over first to last chunk (as Artificial
        Analysis defines output speed). ``None`` for fewer than two chunks or no known counts."""
        if len(self.chunks) < 2 or self.token_source == "unknown":
            return None
        seconds = self.chunks[-1].at_s - self.chunks[0].at_s
        return sum(chunk.tokens for chunk in self.chunks[1:]) / seconds if seconds > 0 else None

    @property
    def longest_gap_s(self) -> float | None:
        """The longest wait between two chunks."""
        if len(self.chunks) < 2:
            return None
        return max(after.at_s - before.at_s for before, after in zip(self.chunks, self.chunks[1:], strict=False))
