"""What is recorded of a task: its steps, the requests and tool runs in each, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ultrafast.bench.client.call import Call
from ultrafast.bench.client.endpoint import Price

Purpose = Literal["note", "call", "replay"]
"""Free text before the call of a step; the call; a recorded request sent again."""


@dataclass(slots=True)
class Request:
    """One request to the model.

    Attributes:
        attempt: at the call of the step: 1, or 2 after an answer that was not the expected call; 0 for other requests.
        problem: why the answer was not what was asked for.
    """

    purpose: Purpose
    attempt: int
    call: Call
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ToolRun:
    """Work of a tool, in seconds on the run's clock."""

    tool: str
    start_s: float
    end_s: float


@dataclass(slots=True)
class Step:
    """Attributes:
    number: from 1.
    start_s, end_s: on the run's clock; nothing but this step happened between.
    by_model: the model made the expected call; otherwise it was done for it, so that the next steps can be timed.
    """

    number: int
    title: str
    start_s: float
    end_s: float
    requests: list[Request] = field(default_factory=list)
    tools: list[ToolRun] = field(default_factory=list)
    by_model: bool = True


@dataclass(slots=True)
class TaskRun:
    """One task, by one arm.

    Attributes:
        round: from 1; the runs of a round are compared with each other.
        num_steps: that it should have had.
        failure: why it ended before its last step.
        histories: what each request said, whole conversations: lines of a file for a replay.
    """

    arm: str
    round: int
    num_steps: int
    steps: list[Step] = field(default_factory=list)
    failure: str | None = None
    histories: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """All steps were gone through; some perhaps not by the model itself."""
        return self.failure is None and len(self.steps) == self.num_steps

    @property
    def wall_s(self) -> float:
        """Time of all its steps. Between steps there is none, unless other arms had their turn."""
        return sum(step.end_s - step.start_s for step in self.steps)

    @property
    def num_by_model(self) -> int:
        return sum(step.by_model for step in self.steps)

    @property
    def requests(self) -> list[Request]:
        return [request for step in self.steps for request in step.requests]

    @property
    def calls(self) -> list[Call]:
        return [request.call for request in self.requests]

    @property
    def num_retries(self) -> int:
        return sum(request.attempt > 1 for request in self.requests)

    @property
    def retry_s(self) -> float:
        """Time of requests that were second attempts."""
        return sum(request.call.e2e_s or 0.0 for request in self.requests if request.attempt > 1)

    @property
    def output_tokens(self) -> int | None:
        """``None``: the server did not state them for every request."""
        return _total([call.output_tokens for call in self.calls])

    def cost(self, price: Price) -> float | None:
        """US dollars; ``None``: not every request has its token counts."""
        costs = [cost(call, price) for call in self.calls]
        return None if None in costs else sum(filter(None, costs))


def cost(call: Call, price: Price) -> float | None:
    """US dollars of a request; ``None``: its token counts are not known."""
    if call.prompt_tokens is None or call.output_tokens is None:
        return None
    cached = call.cached_tokens or 0
    cached_price = price.input if price.cached_input is None else price.cached_input
    input_cost = (call.prompt_tokens - cached) * price.input + cached * cached_price
    return (input_cost + call.output_tokens * price.output) / 1e6


def _total(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(filter(None, counts))
