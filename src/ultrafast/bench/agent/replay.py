"""Lockstep replay: recorded conversations are sent again, request by request, to every arm.

Agents that run free drift apart: another answer makes another next question. Here every arm gets the same recorded
history at every step, whatever it answered before, so that what remains is the model's time at equal context.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ultrafast.bench.agent.conversation import Conversation
from ultrafast.bench.agent.records import Request, Step, TaskRun
from ultrafast.bench.agent.run import Caller, OnStep, Settings, problem_of
from ultrafast.bench.agent.ways import Arm
from ultrafast.bench.client.clock import RunClock
from ultrafast.errors import ConfigError

_ROLES = ("system", "developer", "user", "assistant", "tool")


class Recorded(msgspec.Struct, frozen=True):
    """One line of a recording: a request in the words of Chat Completions. Other fields of the line are ignored.

    Attributes:
        max_tokens: limit of the answer; ``None``: that of the measurement.
        task: lines of one task are one conversation, with caches of its own.
    """

    messages: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    task: str | int = 0


def read_recording(path: Path) -> list[Recorded]:
    """The requests of a recording: JSON Lines, one `Recorded` each; empty lines are skipped.

    Raises:
        ConfigError: it cannot be read, has no request, or a line is something else.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    recorded = [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not recorded:
        raise ConfigError(f"{path}: no request in it; each line is a JSON object with messages")
    return recorded


def write_recording(path: Path, histories: Sequence[Mapping[str, Any]]) -> None:
    """
    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.write_bytes(b"".join(msgspec.json.encode(history) + b"\n" for history in histories))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _parse(line: bytes, where: str) -> Recorded:
    try:
        recorded = msgspec.json.decode(line, type=Recorded)
    except RecursionError:
        raise ConfigError(f"{where}: JSON nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {error}") from None
    for index, message in enumerate(recorded.messages):
        if message.get("role") not in _ROLES:
            raise ConfigError(f"{where}: messages[{index}] has no role; one of {', '.join(_ROLES)}")
    return recorded


async def replay(
    arms: Sequence[tuple[Arm, Caller]],
    recording: Sequence[Recorded],
    clock: RunClock,
    settings: Settings,
    *,
    round: int,
    on_step: OnStep,
) -> list[TaskRun]:
    """Send every request to every arm, one at a time; the arms take turns by conversation, in random order.

    They do not take turns at each request: what a server's cache holds is little, and they would drive each other's
    conversation out of it, as one agent alone does not.

    Answers are timed, not read. The first request that fails is kept as `TaskRun.failure`; the next ones are sent all
    the same.
    """
    rng = random.Random(settings.seed * 1_000 + round)
    runs = {arm.name: TaskRun(arm.name, round, len(recording)) for arm, _ in arms}
    conversations: dict[str | int, list[tuple[int, Recorded]]] = {}
    for number, recorded in enumerate(recording, 1):
        conversations.setdefault(recorded.task, []).append((number, recorded))
    for requests in conversations.values():
        for arm, client in rng.sample(arms, len(arms)):
            conversation, run = Conversation(arm), runs[arm.name]
            for number, recorded in requests:
                conversation.messages = recorded.messages
                step = await _send(client, conversation, recorded, number, clock, settings, round)
                run.steps.append(step)
                if not step.by_model and run.failure is None:
                    run.failure = f"step {number}: {problem_of(step.requests[0].call)}"
                on_step(run, step)
    return list(runs.values())


async def _send(
    client: Caller,
    conversation: Conversation,
    recorded: Recorded,
    number: int,
    clock: RunClock,
    settings: Settings,
    round: int,
) -> Step:
    ask = conversation.ask(
        tools=recorded.tools,
        tool_choice=recorded.tool_choice if recorded.tools else None,
        max_tokens=recorded.max_tokens or settings.step_tokens or None,
        temperature=settings.temperature,
        seed=settings.seed * 1_000_000 + round * 1_000 + number,
        reasoning_effort=settings.reasoning_effort,
    )
    start_s = clock.now()
    call = await client.call(ask, id=f"{round}-{number}", intended_s=start_s)
    request = Request("replay", 0, call)
    return Step(number, f"request {number}", start_s, clock.now(), [request], by_model=call.is_ok)
