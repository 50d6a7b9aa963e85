"""The rounds: in each, every arm does the task once, one after the other, in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import msgspec

from ultrafast.bench.agent.records import Step, TaskRun
from ultrafast.bench.agent.replay import Recorded, replay
from ultrafast.bench.agent.run import OnStep, Settings, run_task
from ultrafast.bench.agent.task import MIN_STEPS
from ultrafast.bench.agent.ways import Arm, Way
from ultrafast.bench.client.client import Client
from ultrafast.bench.client.clock import RunClock
from ultrafast.errors import ConfigError, ServerError

_WARM_UP_TOKENS = 8


class Measurement:
    """One task at a time, whatever the arm; each conversation has a connection of its own.

    Args:
        arms: the first is what the others are compared with.
        recording: what is sent in place of the task, in lockstep.
        on_progress: is told what goes on, the steps done and their number.
        on_step: is told of each step as it ends, but for those that warm up.

    Attributes:
        runs: those that ended, in order; there also when `run` was interrupted.

    Raises:
        ConfigError: an arm occurs twice, or cannot do what is asked.
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        settings: Settings,
        *,
        rounds: int,
        recording: Sequence[Recorded] = (),
        on_progress: Callable[[str, int, int], None] = lambda title, done, total: None,
        on_step: OnStep = lambda run, step: None,
    ) -> None:
        names = [arm.name for arm in arms]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"{name} is asked for twice; there is nothing to compare it with")
        if recording and any(arm.way is Way.CONTINUED for arm in arms):
            raise ConfigError(f"a replay sends whole conversations: use --api {Way.RESPONSES} for it")
        self.arms = list(arms)
        self.settings = settings
        self.rounds = rounds
        self.recording = recording
        self.clock = RunClock()
        self.runs: list[TaskRun] = []
        self._on_progress = on_progress
        self._on_step = on_step
        self._done = 0

    async def run(self) -> None:
        """
        Raises:
            ServerError: an arm could not even warm up.
        """
        for arm in self.arms:
            self._show(f"warming up {arm.name}")
            await self._warm_up(arm)
        rng = random.Random(self.settings.seed)
        for number in range(1, self.rounds + 1):
            if self.recording:
                await self._replay(number)
                continue
            for arm in rng.sample(self.arms, len(self.arms)):
                self._show(f"round {number}, {arm.name}")
                async with Client(arm.endpoint, self.clock) as client:
                    run = await run_task(arm, client, self.clock, self.settings, round=number, on_step=self._count)
                self.runs.append(run)
                self._done = len(self.runs) * self.settings.num_steps  # of one that failed, the rest counts as done

    async def _warm_up(self, arm: Arm) -> None:
        """A short task, so that what client and server do for the first time is not measured."""
        few = replace(
            self.settings, num_steps=MIN_STEPS, step_tokens=min(self.settings.step_tokens, _WARM_UP_TOKENS), tool_s=0.0
        )
        async with Client(arm.endpoint, self.clock) as client:
            if self.recording:
                first = [msgspec.structs.replace(self.recording[0], max_tokens=_WARM_UP_TOKENS)]
                (run,) = await replay([(arm, client)], first, self.clock, few, round=0, on_step=lambda run, step: None)
            else:
                run = await run_task(arm, client, self.clock, few, round=0, on_step=lambda run, step: None)
        if run.failure:
            raise ServerError(
                f"{arm.name} at {arm.endpoint.base_url} failed at its first task, {run.failure}",
                "see what the server takes, and choose --tier, --api and --model by it",
            )

    async def _replay(self, round: int) -> None:
        self._show(f"round {round}, replay")
        async with AsyncExitStack() as stack:
            arms = [(arm, await stack.enter_async_context(Client(arm.endpoint, self.clock))) for arm in self.arms]
            self.runs += await replay(arms, self.recording, self.clock, self.settings, round=round, on_step=self._count)

    def _count(self, run: TaskRun, step: Step) -> None:
        self._done += 1
        self._on_step(run, step)
        self._show(f"round {run.round}, {run.arm}")

    def _show(self, title: str) -> None:
        self._on_progress(title, self._done, self.rounds * len(self.arms) * self._num_steps)

    @property
    def _num_steps(self) -> int:
        return len(self.recording) or self.settings.num_steps
