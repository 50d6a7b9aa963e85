"""Asking every question once in every arm, so many requests in flight; what is in the journal is not asked again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from ultrafast.bench.client.call import Ask, Call, Outcome
from ultrafast.bench.client.client import Client
from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.endpoint import Endpoint
from ultrafast.bench.exam.journal import Journal
from ultrafast.bench.exam.questions import Question
from ultrafast.bench.exam.setup import Setup, arm_of
from ultrafast.errors import ServerError

Progress = Callable[[str, int, int], None]
"""Called with what was done last, how much is done, and how much there is."""

PAUSES_S = (1.0, 4.0, 15.0, 60.0)  # before each further attempt: quotas of hosted services are mostly by the minute
_NO_USE = (401, 402, 403, 404)  # the next question would fare no better


async def ask_all(
    setup: Setup, journal: Journal, on_progress: Progress, *, pauses_s: Sequence[float] = PAUSES_S
) -> None:
    """One session: asks what the journal lacks, and adds each answer to it.

    Raises:
        ServerError: the endpoint cannot be reached, or refuses what every question needs; what is answered is kept.
    """
    todo = deque(
        (question, left)
        for question, arms in setup.order()
        if (left := [arm for arm in arms if (arm_of(arm), question.id) not in journal.answers])
    )
    if not todo:
        return
    session = _Session(setup, journal, todo, on_progress, pauses_s)
    await session.warm_up()
    journal.begin(session.clock.started_at)
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(setup.concurrency, len(todo))):
                tasks.create_task(session.work())
    except* ServerError as group:
        raise group.exceptions[0] from None


async def attempt(client: Client, ask: Ask, *, id: str, clock: RunClock, pauses_s: Sequence[float]) -> tuple[Call, int]:
    """Ask, and again after each pause while the server has no capacity or the connection fails.

    Returns:
        The last call, whose time runs from the first attempt, and how many there were.
    """
    start = clock.now()
    call = await client.call(ask, id=id, intended_s=start)
    for number, pause_s in enumerate(pauses_s, 2):
        if not _may_pass(call):
            return call, number - 1
        await asyncio.sleep(pause_s)
        call = await client.call(ask, id=id, intended_s=start)
    return call, len(pauses_s) + 1


class _Session:
    def __init__(
        self,
        setup: Setup,
        journal: Journal,
        todo: deque[tuple[Question, list[Endpoint]]],
        on_progress: Progress,
        pauses_s: Sequence[float],
    ) -> None:
        self.clock = RunClock()
        self._setup = setup
        self._journal = journal
        self._todo = todo
        self._on_progress = on_progress
        self._pauses_s = pauses_s

    async def warm_up(self) -> None:
        """One small request by each arm, before the clock: connections, caches, and mistakes in the options."""
        for endpoint in self._setup.endpoints:
            warm = Question("warm-up", "Which word is the opposite of 'no'?", "yes")
            async with Client(endpoint, self.clock, timeout_s=self._setup.timeout_s) as client:
                call = await client.call(self._setup.ask(warm), id=warm.id)
            if call.outcome is Outcome.ERROR or _is_gone(call):
                raise ServerError(
                    f"{endpoint.base_url} does not do what is asked, by {arm_of(endpoint)}: {call.error}",
                    "nothing is asked yet",
                )

    async def work(self) -> None:
        """Takes questions until there are none; an arm after the other gets each."""
        setup = self._setup
        async with AsyncExitStack() as stack:
            clients = {
                arm_of(endpoint): await stack.enter_async_context(
                    Client(endpoint, self.clock, timeout_s=setup.timeout_s)
                )
                for endpoint in setup.endpoints
            }
            while self._todo:
                question, arms = self._todo.popleft()
                for endpoint in arms:
                    await self._answer(question, arm_of(endpoint), clients[arm_of(endpoint)])

    async def _answer(self, question: Question, arm: str, client: Client) -> None:
        journal = self._journal
        journal.asking(arm, question.id)
        call, attempts = await attempt(
            client, self._setup.ask(question), id=question.id, clock=self.clock, pauses_s=self._pauses_s
        )
        done, total = len(journal.answers), len(self._setup.questions.questions) * len(self._setup.endpoints)
        if _is_gone(call) or call.status in _NO_USE:
            raise ServerError(
                f"the endpoint stopped answering after {done} of {total}: {call.error}",
                f"they are kept in {journal.path}, and the same command goes on from there",
            )
        journal.add(arm, question.id, attempts, call)
        self._on_progress(f"{arm} {question.id}", done + 1, total)


def _may_pass(call: Call) -> bool:
    return call.outcome in (Outcome.REFUSED, Outcome.BROKEN) or (call.status or 0) >= 500


def _is_gone(call: Call) -> bool:
    """Whether there was not even a status."""
    return call.outcome is Outcome.BROKEN and call.status is None
