"""What a workflow is told, and what it tells: the contract between `ultrafast ab` and whatever it runs."""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ultrafast.bench.ab.run.records import Arm, Ended, Task

OUTCOME = "ULTRAFAST_OUTCOME"
_LONGEST_WORD = 200


@dataclass(frozen=True, slots=True)
class Job:
    """One run to be made.

    Attributes:
        base_url: of the gateway, for this run alone.
        timeout_s: after so long it is stopped.
    """

    arm: Arm
    task: Task
    seed: int
    base_url: str
    timeout_s: float

    def environment(self) -> dict[str, str]:
        """Our own variables and the arm's over those of this process.

        The key is a dummy where the arm has one of its own: the gateway sends that, and the workflow never sees it.
        """
        endpoint = self.arm.endpoint
        ours = {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_BASE": self.base_url,
            "ANTHROPIC_BASE_URL": self.base_url.removesuffix("/v1"),
            "ULTRAFAST_MODEL": endpoint.model,
            "ULTRAFAST_TIER": endpoint.tier or "",
            "ULTRAFAST_TASK": self.task.id,
            "ULTRAFAST_SEED": str(self.seed),
            "ULTRAFAST_ARM": self.arm.name,
        }
        given = dict(os.environ)
        if endpoint.api_key is not None or not given.get("OPENAI_API_KEY"):
            ours["OPENAI_API_KEY"] = "set-by-the-gateway"
        return given | ours | dict(self.arm.env)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a job.

    Attributes:
        success: what the workflow itself said of it, if anything.
        output: for the check.
    """

    start_s: float
    wall_s: float
    ended: Ended
    exit_status: int | None = None
    error: str | None = None
    success: bool | None = None
    outcomes: Mapping[str, float | str] = field(default_factory=dict)
    output: bytes = b""


Workflow = Callable[[Job], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Said:
    """What a workflow wrote down of itself.

    Attributes:
        seconds: how long it took, where it knows better: without its own start, say.
    """

    success: bool | None = None
    seconds: float | None = None
    outcomes: Mapping[str, float | str] = field(default_factory=dict)


def parse_outcome(raw: bytes) -> Said:
    """An outcome file: one JSON object. ``success`` and ``seconds`` mean what `Said` says; numbers, truth values and
    short words beside them are outcomes.

    Raises:
        ValueError: it is something else.
    """
    try:
        value: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the outcome is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("the outcome is no JSON object")
    success, seconds = value.pop("success", None), value.pop("seconds", None)
    if not isinstance(success, bool | None):
        raise ValueError(f"success in the outcome is {success!r:.40}, neither true nor false")
    if seconds is not None and (_number(seconds) is None or not 0 < seconds < math.inf):
        raise ValueError(f"seconds in the outcome is {seconds!r:.40}, no time")
    outcomes: dict[str, float | str] = {}
    for name, item in value.items():
        number = _number(item)
        if number is not None:
            outcomes[name[:_LONGEST_WORD]] = number
        elif isinstance(item, str):
            outcomes[name[:_LONGEST_WORD]] = item[:_LONGEST_WORD]
    return Said(success, _number(seconds), outcomes)


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:  # a whole number beyond what floats hold
        return None
