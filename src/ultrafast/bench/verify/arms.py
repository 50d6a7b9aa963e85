"""Two ways of asking, side by side. Levels know endpoints by `Asker` alone, which the HTTP client is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ultrafast.bench.client.call import Ask, Call
from ultrafast.errors import ServerError

Progress = Callable[[str, int, int], None]
"""Called with what is asked, the calls done and their number."""


class Asker(Protocol):
    """What a `Client` does."""

    async def call(self, ask: Ask, *, id: str, intended_s: float | None = None) -> Call: ...


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of asking.

    Attributes:
        name: for people; the two arms of a run differ in it.
        tier: asked for; ``None``: none.
    """

    name: str
    asker: Asker
    tier: str | None = None


@dataclass(frozen=True, slots=True)
class Arms:
    """The pair that is compared: `first` is the one that is trusted, and the floor is measured on it.

    Attributes:
        same_model: both ask for one model at one address, and differ in the tier.
        concurrency: calls in flight, over both arms.
        on_call: told of every call, with the level it belongs to.
    """

    first: Arm
    second: Arm
    same_model: bool = True
    concurrency: int = 4
    seed: int = 0
    progress: Progress = lambda title, done, total: None
    on_call: Callable[[str, Call], None] = lambda level, call: None

    async def ask(self, level: str, asks: Sequence[tuple[Arm, Ask]]) -> list[Call]:
        """All answers, in the order of `asks`. They are asked in random order, so that whatever drifts in time or with
        the load hits all alike; calls that fail stay among them and say so."""
        calls: list[Call | None] = [None] * len(asks)
        order = random.Random(f"{self.seed} {level}").sample(range(len(asks)), len(asks))
        waiting = iter(order)
        done = 0

        async def work() -> None:
            nonlocal done
            for index in waiting:
                arm, ask = asks[index]
                call = calls[index] = await arm.asker.call(ask, id=f"{level}-{index}")
                self.on_call(level, call)
                done += 1
                self.progress(level, done, len(asks))

        self.progress(level, 0, len(asks))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.concurrency, len(asks))):
                group.create_task(work())
        return [call for call in calls if call is not None]


def answer_of(call: Call) -> str:
    """All that was said: thoughts too, since they come from the same model."""
    return call.thoughts + call.text


def failed(calls: Sequence[Call]) -> str:
    """How many calls failed, and why the first one did; empty when none did."""
    errors = [call for call in calls if not call.is_ok]
    if not errors:
        return ""
    return f"{len(errors)} of {len(calls)} calls failed, the first with: {errors[0].outcome}: {errors[0].error}"


def require_answers(arm: Arm, calls: Sequence[Call]) -> None:
    """
    Raises:
        ServerError: none of the calls succeeded.
    """
    if calls and not any(call.is_ok for call in calls):
        raise ServerError(f"{arm.name}: {failed(calls)}", "see whether it answers with `ultrafast bench api`")
