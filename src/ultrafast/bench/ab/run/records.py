"""What is compared and what is written down: arms, tasks, pairs of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ultrafast.bench.client.call import Call
from ultrafast.bench.client.endpoint import Endpoint, Price

Kind = Literal["warmup", "aa", "ab"]
"""A pair that is dropped; A against itself, which tells how much noise there is; A against B."""

Ended = Literal["done", "failed", "timeout"]
"""By itself; with an error (an exit status, an exception, a request that was refused); by our limit on time."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the two configurations.

    Attributes:
        name: ``A`` or ``B``.
        env: variables for the workflow, beside the usual ones.
        prices: by tier that served; ``None``: by any other.
        cold: each run starts with an empty prefix cache; else with what the runs before left there.
    """

    name: str
    endpoint: Endpoint
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    prices: Mapping[str | None, Price] = field(default_factory=dict)
    cold: bool = False

    def price_of(self, tier_served: str | None) -> Price | None:
        return self.prices.get(tier_served) or self.prices.get(None)


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do: `data` is the line of the tasks file, or what a recorded request says."""

    id: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One arm's try at a task.

    Attributes:
        arm: its name.
        start_s, wall_s: on the clock of the process that measured; only their differences mean anything.
        success: what the check said, else what the workflow said, else whether it ended well.
        outcomes: numbers and words that the workflow wrote down.
    """

    arm: str
    start_s: float
    wall_s: float
    ended: Ended
    success: bool
    exit_status: int | None = None
    error: str | None = None
    outcomes: Mapping[str, float | str] = field(default_factory=dict)
    calls: Sequence[Call] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A pair to be run.

    Attributes:
        number: from 0, in the order in which pairs start.
        order: arms in the order in which they run, such as ``BA``.
        seed: the same for both runs.
    """

    number: int
    kind: Kind
    task: str
    order: str
    seed: int


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair that was run; `runs` in the order in which they were. In an A/A pair, the coin calls one of them the
    first: ``order`` tells which."""

    plan: Plan
    started_at: str
    runs: tuple[Run, Run]

    @property
    def sides(self) -> tuple[Run, Run]:
        """A's run and B's; of an A/A pair, the one that the coin calls A, and the other."""
        first, second = self.runs
        return (second, first) if self.plan.order.startswith(("B", "a")) else (first, second)
