"""The door: which tier a request gets, and whether it waits. Decided once, from counts; the engine keeps to it.

A tier has a free slot while fewer of its requests are open (running or waiting) than it has slots; ``fast``,
``default`` and ``flex`` together also have no more than ``default`` has, where the lower ones give way to the higher.
Without one, the tier's `Overflow` decides.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass, replace

from ultrafast.engine.tiers import DEFAULT, FLEX, TIERS, ULTRAFAST, Overflow, Tiers
from ultrafast.errors import QueueFull, RequestError

_SHARED = tuple(tier for tier in TIERS if tier != ULTRAFAST)
_STRICTNESS = tuple(Overflow)  # a request may go down this list, not up
_RECENT = 32  # requests a tier whose length is remembered
_RETRY_S = (1.0, 60.0)  # bounds of the advice


@dataclass(frozen=True, slots=True)
class Ticket:
    """What one request was promised, until it is given back with `Admission.release`.

    Attributes:
        asked: the tier it asked for.
        admitted: the tier that will serve it.
        queued: it has to wait for a slot.
    """

    asked: str
    admitted: str
    queued: bool


@dataclass(frozen=True, slots=True)
class Room:
    """What a tier has room for.

    Attributes:
        limit: requests that it takes at once: its slots and its queue.
        remaining: of these, those that it would take now.
        reset_s: seconds until it has all of its room again, if requests go on as the last ones did: a guess.
    """

    limit: int
    remaining: int
    reset_s: float


class Admission:
    """Counts the open requests of every tier of one model. Thread-safe.

    Args:
        tiers: their slots, queues and policies.
    """

    def __init__(self, tiers: Tiers) -> None:
        self._policies = tiers.policies
        self._lock = threading.Lock()
        self._open = dict.fromkeys(TIERS, 0)
        self._waiting = dict.fromkeys(TIERS, 0)  # of the open ones
        self._lengths_s: dict[str, deque[float]] = {tier: deque(maxlen=_RECENT) for tier in TIERS}

    def admit(self, asked: str, *, overflow: Overflow | None = None, count: int = 1) -> Ticket:
        """Let requests in, all or none.

        Args:
            asked: their tier.
            overflow: what to do instead of the tier's policy when it is full; stricter only.
            count: how many there are; they are served by the same tier.

        Returns:
            A ticket that each of them gives back once.

        Raises:
            QueueFull: there is no room; the message has the numbers.
            RequestError: ``overflow`` asks for more than the policy grants, or ``count`` for more than there ever is.
        """
        tier, rule = asked, self._rule(asked, overflow)
        with self._lock:
            if rule is Overflow.DEFAULT and self._num_free(tier) < count:
                tier, rule = DEFAULT, self._policies[DEFAULT].overflow
            queue = 0 if rule is Overflow.REJECT else self._policies[tier].queue
            num_waiting = max(0, count - self._num_free(tier))
            if num_waiting and self._waiting[tier] + num_waiting > queue:
                raise self._refusal(tier, count, queue)
            ticket = Ticket(asked, tier, queued=num_waiting > 0)
            self._open[tier] += count
            if ticket.queued:  # all of them, until they tell: the engine picks which come first
                self._waiting[tier] += count
        return ticket

    def started(self, ticket: Ticket) -> Ticket:
        """The ticket of a request whose waiting is over: to be released in place of the old one."""
        with self._lock:
            self._waiting[ticket.admitted] -= ticket.queued
        return replace(ticket, queued=False)

    def release(self, ticket: Ticket, *, length_s: float | None = None) -> None:
        """A request has ended, whatever way.

        Args:
            ticket: its ticket.
            length_s: how long it held its slot; None if it never had one.
        """
        with self._lock:
            self._open[ticket.admitted] -= 1
            self._waiting[ticket.admitted] -= ticket.queued
            if length_s is not None:
                self._lengths_s[ticket.admitted].append(length_s)

    def waited_in_vain(self, ticket: Ticket) -> QueueFull:
        """The 429 for a request that has waited as long as its tier allows."""
        limit_s = self._policies[ticket.admitted].queue_timeout_s
        with self._lock:
            return self._too_busy(ticket.admitted, f"no slot of {ticket.admitted} came free within {limit_s:g} s")

    def room(self, tier: str) -> Room:
        """What the tier has room for, its own overflow into ``default`` not counted."""
        policy = self._policies[tier]
        queue = policy.queue if policy.overflow is Overflow.QUEUE else 0
        with self._lock:
            limit = min(slots for _, slots, _ in self._limits(tier)) + queue
            remaining = max(0, self._num_free(tier) + queue - self._waiting[tier])
            turns = math.ceil(self._open[tier] / max(1, policy.slots))
            return Room(limit, remaining, (self._length_s(tier) or _RETRY_S[0]) * turns)

    def num_open(self, tier: str) -> int:
        """Requests of the tier that run or wait."""
        return self._open[tier]

    def num_waiting(self, tier: str) -> int:
        """Requests of the tier that wait for a slot."""
        return self._waiting[tier]

    def _rule(self, asked: str, overflow: Overflow | None) -> Overflow:
        """What holds for a request when its tier is full."""
        policy = self._policies[asked].overflow
        if overflow is None or asked == overflow.value:  # whoever asks for `default` is served as default anyway
            return policy
        allowed = _STRICTNESS[_STRICTNESS.index(policy) :]
        if overflow not in allowed:
            raise RequestError(
                f"{asked} requests that find no free slot cannot ask for {overflow.value!r} here; "
                f"allowed: {', '.join(repr(rule.value) for rule in allowed)}.",
                code="invalid_value",
                param="service_tier_overflow",
            )
        return overflow

    def _limits(self, tier: str) -> list[tuple[int, int, str]]:
        """What bounds the tier: (free slots, slots, whose they are)."""
        slots, shared = self._policies[tier].slots, self._policies[DEFAULT].slots
        own = (slots - self._open[tier], slots, f"{tier} has")
        if tier == ULTRAFAST:
            return [own]
        higher = _SHARED[: _SHARED.index(tier) + 1]  # the lower ones give way
        return [own, (shared - sum(self._open[other] for other in higher), shared, f"{', '.join(higher)} share")]

    def _num_free(self, tier: str) -> int:
        return max(0, min(self._limits(tier))[0])

    def _refusal(self, tier: str, count: int, queue: int) -> RequestError:
        slots = min(slots for _, slots, _ in self._limits(tier))
        if count > slots + queue:
            return RequestError(
                f"{tier} has {_counted(slots, 'slot')} and a queue of {queue} here: {_counted(count, 'request')} at "
                "once cannot be served, now or later.",
                code="invalid_value",
                param="n" if count > 1 else "service_tier",
            )
        free, slots, whose = min(self._limits(tier))
        in_use = f"{slots - free} in use" if free > 0 else "all in use"
        waiting = self._waiting[tier]
        wait = "1 request waits" if waiting == 1 else f"{waiting} requests wait"
        problem = f"{whose} {_counted(slots, 'slot')}, {in_use}, and {wait}"
        return self._too_busy(tier, problem + (f": no room for {count} at once" if count > 1 else ""))

    def _too_busy(self, tier: str, problem: str) -> QueueFull:
        retry_after = self._retry_after(tier)
        return QueueFull(
            f"{problem}. Try again in {retry_after:.0f} s, or ask for another tier.",
            code="resource_unavailable" if tier == FLEX else "rate_limit_exceeded",
            retry_after=retry_after,
        )

    def _retry_after(self, tier: str) -> float:
        """Seconds until those who wait now, and one more, have had a slot, if requests go on as the last ones did."""
        turns = (self._waiting[tier] + 1) / max(1, self._policies[tier].slots)
        low, high = _RETRY_S
        return min(max(low, self._length_s(tier) * turns), high)

    def _length_s(self, tier: str) -> float:
        """How long its last requests held their slots, on average."""
        lengths = self._lengths_s[tier]
        return sum(lengths) / len(lengths) if lengths else 0.0


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
