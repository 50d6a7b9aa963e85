"""Runs the pairs that a design says, several at a time if asked to, and writes each down when it is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from ultrafast.bench.ab.gateway.server import Gateway
from ultrafast.bench.ab.run import process
from ultrafast.bench.ab.run.journal import Writer
from ultrafast.bench.ab.run.records import Arm, Pair, Plan, Run, Task
from ultrafast.bench.ab.run.workflow import Job, Workflow


class Runner:
    """Runs pairs.

    Args:
        arms: by name.
        check: a shell command that decides on success.
        timeout_s: for each run.
        concurrency: pairs under way at once; the runs of one pair never overlap.
        on_pair: called after each pair.
    """

    def __init__(
        self,
        workflow: Workflow,
        arms: Mapping[str, Arm],
        *,
        check: str | None,
        timeout_s: float,
        concurrency: int,
        on_pair: Callable[[Pair], None],
    ) -> None:
        self._workflow = workflow
        self._arms = arms
        self._check = check
        self._timeout_s = timeout_s
        self._concurrency = concurrency
        self._on_pair = on_pair

    async def run(self, plans: Iterable[Plan], tasks: Mapping[str, Task], journal: Writer) -> None:
        """Runs what the journal does not hold yet, in order."""
        left = iter([plan for plan in plans if plan.number not in journal.done])
        started = time.monotonic()
        async with Gateway(started) as gateway, asyncio.TaskGroup() as group:

            async def take_turns() -> None:
                for plan in left:
                    pair = await self._pair(plan, tasks[plan.task], gateway, started)
                    journal.add(pair)
                    self._on_pair(pair)

            for _ in range(self._concurrency):
                group.create_task(take_turns())

    async def _pair(self, plan: Plan, task: Task, gateway: Gateway, started: float) -> Pair:
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        first, second = [await self._one(plan, letter.upper(), task, gateway, started) for letter in plan.order]
        return Pair(plan, started_at, (first, second))

    async def _one(self, plan: Plan, letter: str, task: Task, gateway: Gateway, started: float) -> Run:
        arm = self._arms[letter]
        tap = gateway.open(arm.endpoint, task=task.id, arm=arm.name, cold=arm.cold)
        job = Job(arm, task, plan.seed, tap.base_url, self._timeout_s)
        try:
            result = await self._workflow(job)
        finally:
            calls = await gateway.close(tap)
        success = result.ended == "done" and result.success is not False
        if success and self._check is not None:
            success = await process.check(self._check, job, result.output)
        return Run(
            arm=arm.name,
            start_s=result.start_s - started,
            wall_s=max(result.wall_s, 1e-6),
            ended=result.ended,
            success=success,
            exit_status=result.exit_status,
            error=result.error,
            outcomes=result.outcomes,
            calls=calls,
        )
