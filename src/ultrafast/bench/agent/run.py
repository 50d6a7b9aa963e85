"""One arm does the task once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ultrafast.bench.agent.conversation import Conversation
from ultrafast.bench.agent.records import Purpose, Request, Step, TaskRun, ToolRun
from ultrafast.bench.agent.task import SYSTEM, Expected, Task
from ultrafast.bench.agent.ways import Arm
from ultrafast.bench.client.call import Ask, Call
from ultrafast.bench.client.clock import RunClock

CALL_TOKENS = 512
"""Limit of a request for a call: several times what the longest expected one needs, so that only a model that strays
meets it."""

NOTE = "Before that, write a note to the harbour master: what is known so far, and why this step comes next."


class Caller(Protocol):
    """Of `Client`, what is needed here."""

    async def call(self, ask: Ask, *, id: str, intended_s: float | None = None) -> Call: ...


@dataclass(frozen=True, slots=True)
class Settings:
    """What all arms of a measurement share.

    Attributes:
        step_tokens: limit of the note before each call; 0: no notes.
        tool_s: what each tool takes beside its work; a stand-in for slow tools.
        seed: of sampling. Each request of a round has its own, the same in every arm; not all APIs take one.
    """

    num_steps: int = 10
    step_tokens: int = 120
    tool_s: float = 0.0
    temperature: float | None = 0.7
    seed: int = 1
    reasoning_effort: str | None = None


OnStep = Callable[[TaskRun, Step], None]
"""Called after each step."""


class RequestFailed(Exception):
    """Says how; the task cannot go on."""


async def run_task(
    arm: Arm, client: Caller, clock: RunClock, settings: Settings, *, round: int, on_step: OnStep
) -> TaskRun:
    """Do all steps, or those up to the first request that fails (`TaskRun.failure`)."""
    task = Task(settings.num_steps)
    run = TaskRun(arm.name, round, settings.num_steps)
    agent = _Agent(arm, client, clock, settings, task, run)
    agent.conversation.add("system", SYSTEM)
    agent.conversation.add("user", task.goal)
    start_s = clock.now()
    for number, expected in enumerate(task.steps, 1):
        step = Step(number, expected.tool, start_s, start_s)
        run.steps.append(step)
        try:
            await agent.do(step, expected)
        except RequestFailed as failed:
            run.failure = f"step {number}: {failed}"
        step.end_s = start_s = clock.now()
        on_step(run, step)
        if run.failure:
            break
    return run


class _Agent:
    def __init__(self, arm: Arm, client: Caller, clock: RunClock, settings: Settings, task: Task, run: TaskRun) -> None:
        self.conversation = Conversation(arm)
        self._client = client
        self._clock = clock
        self._settings = settings
        self._task = task
        self._run = run

    async def do(self, step: Step, expected: Expected) -> None:
        """One step: a note, the call (tried twice at most), the tool."""
        head = f"Step {step.number} of {self._settings.num_steps} is to {expected.what}."
        order = f"Now call {expected.in_words()}."
        if self._settings.step_tokens:
            self.conversation.add("user", f"{head} {NOTE}")
            await self._note(step)
            self.conversation.add("user", order)
        else:
            self.conversation.add("user", f"{head} {order}")
        if not await self._call(step, expected, 1):
            await self._call(step, expected, 2)

    async def _note(self, step: Step) -> None:
        request = await self._request(step, "note", 0, max_tokens=self._settings.step_tokens, tool_choice="none")
        if request.call.tool_calls:
            request.problem = "a call where text was asked for"
            self._tell("Error: nothing was called for yet.")

    async def _call(self, step: Step, expected: Expected, attempt: int) -> bool:
        """Ask for the call, and run the tool if it is made or this was the second attempt; says whether it ran."""
        request = await self._request(step, "call", attempt, max_tokens=CALL_TOKENS, tool_choice=expected.choice)
        request.problem = expected.problem(request.call.tool_calls)
        step.by_model = request.problem is None
        if step.by_model:
            self._tell(await self._run_tool(step, expected))
        elif attempt == 1:
            self._tell(f"Error: this was {request.problem}. Call {expected.in_words()}.")
        else:
            result = await self._run_tool(step, expected)
            self._tell(f"Error: this was {request.problem}. It was done for you, with this result:\n{result}")
        return bool(step.tools)

    async def _request(self, step: Step, purpose: Purpose, attempt: int, **fields: Any) -> Request:
        run, settings = self._run, self._settings
        ask = self.conversation.ask(
            tools=self._task.tools,
            temperature=settings.temperature,
            seed=settings.seed * 1_000_000 + run.round * 1_000 + step.number * 10 + attempt,
            reasoning_effort=settings.reasoning_effort,
            **fields,
        )
        sent = {"messages": list(self.conversation.messages), "tools": self._task.tools, **fields}
        run.histories.append({"task": run.round, "step": step.number, **sent})
        call = await self._client.call(
            ask, id=f"{run.round}-{step.number}-{purpose}-{attempt}", intended_s=self._clock.now()
        )
        request = Request(purpose, attempt, call)
        step.requests.append(request)
        if not call.is_ok:
            step.by_model = False
            raise RequestFailed(problem_of(call))
        self.conversation.answered(call)
        return request

    async def _run_tool(self, step: Step, expected: Expected) -> str:
        start_s = self._clock.now()
        result = expected.work()
        if self._settings.tool_s:
            await asyncio.sleep(self._settings.tool_s)
        step.tools.append(ToolRun(expected.tool, start_s, self._clock.now()))
        return result

    def _tell(self, result: str) -> None:
        """Give the result to every call of the last answer; to an answer without one, as a message."""
        calls = self.conversation.messages[-1].get("tool_calls", [])
        for call in calls:
            self.conversation.add("tool", result, tool_call_id=call["id"])
        if not calls:
            self.conversation.add("user", result)


def problem_of(call: Call) -> str:
    """What became of a request that failed."""
    status = f" {call.status}" if call.status not in (None, 200) else ""
    return f"{call.outcome}{status}: {call.error or 'nothing more is known'}"
