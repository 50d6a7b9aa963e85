"""What a run was asked to be: all it takes to say whether a journal may go on, and to read it later. No keys."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ultrafast.bench.ab.run.records import Arm, Task
from ultrafast.bench.client.endpoint import Endpoint, Price
from ultrafast.errors import ConfigError

RELATIVE = "units"
"""The unit of money where prices are only known as multiples of each other: 1 buys a million tokens of the tier
``default``."""


@dataclass(frozen=True, slots=True)
class ArmSetup:
    """An arm, as a journal has it.

    Attributes:
        env: names of its own variables; values may be secrets.
        prices: by tier; ``*``: by any other.
    """

    url: str
    model: str
    tier: str | None
    env: list[str] = field(default_factory=list)
    prices: dict[str, Price] = field(default_factory=dict)
    cold: bool = False


@dataclass(frozen=True, slots=True)
class Setup:
    """A run.

    Attributes:
        workflow: the command, function or file of requests.
        tasks: how many there are: A/B pairs that the run is to have.
        tasks_digest: of what they say.
    """

    workflow: str
    arms: dict[str, ArmSetup]
    tasks: int
    tasks_digest: str
    check: str | None
    aa_share: float
    warmups: int
    seed: int
    timeout_s: float
    concurrency: int
    margin: float
    unit: str


def digest(tasks: Sequence[Task]) -> str:
    """Of what the tasks say, in order: a journal goes on only with the same."""
    said = msgspec.json.encode([[task.id, task.data] for task in tasks], order="sorted")
    return hashlib.sha256(said).hexdigest()[:16]


def arm_setup(arm: Arm) -> ArmSetup:
    """What the journal keeps of an arm."""
    endpoint = arm.endpoint
    prices = {tier or "*": price for tier, price in arm.prices.items()}
    return ArmSetup(endpoint.base_url, endpoint.model, endpoint.tier, sorted(arm.env), prices, arm.cold)


def read_setup(path: Path, data: Mapping[str, Any]) -> Setup:
    """Of a journal.

    Raises:
        ConfigError: it is something else.
    """
    try:
        setup = msgspec.convert(data, Setup)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: not the setup of a run: {error}") from None
    if set(setup.arms) != {"A", "B"} or not 0 < setup.margin < 1 or setup.tasks < 1:
        raise ConfigError(f"{path}: not the setup of a run with two arms, a margin and tasks")
    return setup


def arms_of(setup: Setup) -> dict[str, Arm]:
    """The arms of a journal, good for analysis: they have no keys and no variables.

    Raises:
        ConfigError: an address is none.
    """
    return {
        name: Arm(
            name,
            Endpoint(arm.url, arm.model, tier=arm.tier),
            prices={None if tier == "*" else tier: price for tier, price in arm.prices.items()},
            cold=arm.cold,
        )
        for name, arm in setup.arms.items()
    }
