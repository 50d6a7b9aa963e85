"""Schedules of answers: what the reference endpoint (`support.schedule_server`) is told to send, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import msgspec

WORD = "word "  # each token's text


class Step(msgspec.Struct, frozen=True):
    """One event.

    Attributes:
        delay_s: after the step before, or the request; never made up for by a shorter one later.
        cut_s: if not 0, half of its bytes are sent so much later than the rest.
    """

    delay_s: float
    tokens: int = 1
    kind: Literal["answer", "thought", "tool"] = "answer"
    cut_s: float = 0.0

    @property
    def text(self) -> str:
        return WORD * self.tokens


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """One answer.

    Attributes:
        refuse: a status to answer with instead.
        drop_after: the connection is cut after so many steps; 0: before the first byte.
        error_after: an error event follows so many steps, and is the last.
        stop_after: the stream ends in good order after so many steps, but without any word of it.
        usage: token counts are told with every event (Chat and Completions, to those who ask), at the end, or never.
        strict: a request for counts with every event gets a 400 that names the field.
        reasoning_tokens: so many more than the steps tell of are in the usage, as reasoning that is not shown.
        end_s: from the last step to the end of the stream.
        tier: the ``service_tier`` that the answer claims; None: as asked, or ``default``.
        own: what the answer says at its end of the server's own measurements, in fields beside the usage.
    """

    steps: list[Step] = msgspec.field(default_factory=list)
    refuse: int | None = None
    drop_after: int | None = None
    error_after: int | None = None
    stop_after: int | None = None
    usage: Literal["chunks", "end", "none"] = "chunks"
    strict: bool = False
    reasoning_tokens: int = 0
    end_s: float = 0.0
    tier: str | None = None
    own: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return sum(step.tokens for step in self.steps)

    def asked(self) -> dict[str, Any]:
        """The field of a request's body that carries it: `Ask.extra`."""
        return {"schedule": msgspec.to_builtins(self)}


def drawn(seed: int, *, events: int = 8, delays_s: tuple[float, float] = (0.05, 0.2)) -> Schedule:
    """A schedule of 1 to 8 tokens an event, the same for the same arguments."""
    draw = random.Random(seed)
    return Schedule(steps=[Step(draw.uniform(*delays_s), draw.randint(1, 8)) for _ in range(events)])


@dataclass
class Truth:
    """What the endpoint did for one request: seconds on `time.monotonic`, which processes share on Linux.

    Attributes:
        id: of the answer, as the client sees it; None for refused ones.
        received_s: the whole request was there.
        written_s: of each step, when its last byte was written.
        ended_s: the end was written, or the connection cut.
        left: the client hung up before.
    """

    api: str
    id: str | None
    received_s: float
    body: dict[str, Any]
    written_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    ended_s: float | None = None
    left: bool = False

    @property
    def ttft_s(self) -> float:
        return self.written_s[0] - self.received_s

    @property
    def e2e_s(self) -> float:
        assert self.ended_s is not None
        return self.ended_s - self.received_s

    @property
    def output_speed(self) -> float:
        return sum(self.tokens[1:]) / (self.written_s[-1] - self.written_s[0])

    @property
    def longest_gap_s(self) -> float:
        return max(after - before for before, after in pairwise(self.written_s))
