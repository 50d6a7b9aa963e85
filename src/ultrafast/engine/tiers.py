"""Service tiers as the engine knows them: four lanes, and what an operator may set for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

ULTRAFAST, FAST, DEFAULT, FLEX = TIERS = ("ultrafast", "fast", "default", "flex")
"""The tiers, fastest first."""


class Overflow(StrEnum):
    """What happens to a request whose tier is full. A request may narrow its tier's policy: down this list."""

    DEFAULT = "default"  # served and billed as `default`, and echoed so
    QUEUE = "queue"  # waits for its tier, at most `TierPolicy.queue_timeout_s`, then 429
    REJECT = "reject"  # 429 at once


@dataclass(frozen=True, slots=True)
class TierPolicy:
    """How one tier of one model is served.

    Attributes:
        slots: requests of the tier that run at once. Those of ``ultrafast`` are reserved; the others share theirs.
        queue: requests that may wait for a slot; past that, 429.
        overflow: for requests that find no free slot.
        queue_timeout_s: seconds that a request waits under `Overflow.QUEUE`.
        speculation: whether drafts are verified several at a time: same tokens, sooner.
        price: of a token, as a multiple of the default tier's.
    """

    slots: int
    queue: int
    overflow: Overflow
    queue_timeout_s: float = 30.0
    speculation: bool = False
    price: float = 1.0


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers of one model.

    Attributes:
        policies: one a tier.
        share: of the time that ``ultrafast`` gets while other tiers have work as well; the rest is guaranteed to them.
    """

    policies: Mapping[str, TierPolicy]
    share: float = 0.9


DEFAULT_TIERS = Tiers(
    {
        ULTRAFAST: TierPolicy(slots=4, queue=64, overflow=Overflow.QUEUE, speculation=True, price=6.0),
        FAST: TierPolicy(slots=8, queue=0, overflow=Overflow.DEFAULT, price=2.0),
        DEFAULT: TierPolicy(slots=32, queue=1024, overflow=Overflow.QUEUE, queue_timeout_s=600.0),
        FLEX: TierPolicy(slots=16, queue=0, overflow=Overflow.REJECT, price=0.5),
    }
)
"""What holds without a configuration file. Prices are the multiples that hosted services take for the same names."""
