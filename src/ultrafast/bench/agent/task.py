"""The task: which steps it has, which call each expects, and the tools as a model is offered them.

A model cannot go wrong where the server keeps to schemas: each step names the one tool it may call, and the schema of
that tool has one value for each parameter. So there is a tool for each different call (``read_north_quay`` reads one
file), and all of them are offered all the time: were they changed from step to step, no prompt would begin like the
last one, and no prefix cache would be of use, as it is to real agents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ultrafast.bench.agent.world import MAX_FILES, World
from ultrafast.bench.client.call import ToolCall

MIN_STEPS = 3
MAX_STEPS = 2 + 4 * MAX_FILES
"""Steps that there are ledgers for; their tools are fewer than the 128 that APIs take."""

SYSTEM = (
    "You are a careful bookkeeper, and repair the ledgers of a harbour with the tools that you are given. "
    "You do one step at a time, as you are told."
)


@dataclass(frozen=True, slots=True)
class Expected:
    """One step: the call that is expected, and the work it stands for."""

    tool: str
    arguments: Mapping[str, str]
    what: str  # as a part of a sentence
    work: Callable[[], str] = field(repr=False, compare=False)

    @property
    def choice(self) -> dict[str, Any]:
        """`tool_choice`, as Chat Completions has it."""
        return {"type": "function", "function": {"name": self.tool}}

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as Chat Completions has it: strict, one value a parameter."""
        schema = {
            "type": "object",
            "properties": {name: {"type": "string", "enum": [value]} for name, value in self.arguments.items()},
            "required": list(self.arguments),
            "additionalProperties": False,
        }
        description = f"{self.what[0].upper()}{self.what[1:]}."
        function = {"name": self.tool, "description": description, "parameters": schema, "strict": True}
        return {"type": "function", "function": function}

    def in_words(self) -> str:
        return f"{self.tool} with the arguments {json.dumps(dict(self.arguments))}"

    def problem(self, calls: Sequence[ToolCall]) -> str | None:
        """What is wrong with an answer that has these calls; ``None``: it is the expected one."""
        if not calls:
            return "no call"
        if len(calls) > 1:
            return f"{len(calls)} calls"
        if calls[0].name != self.tool:
            return f"a call of {calls[0].name}"
        arguments = arguments_of(calls[0])
        if arguments is None:
            return "a call whose arguments are no JSON object"
        return None if arguments == self.arguments else "other arguments"


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """The arguments of a call; ``None``: they are no JSON object (cut at a limit, say)."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


class Task:
    """Args:
    num_steps: `MIN_STEPS` to `MAX_STEPS`. The first lists the files and the last closes the books; between, each
        defect takes four steps (find, read, patch, check), and what does not make four reads a further file.
    """

    def __init__(self, num_steps: int) -> None:
        num_defects, num_further = divmod(num_steps - 2, 4)
        self.world = World(min(num_defects + max(num_further, 1), MAX_FILES), num_defects)
        self.steps = list(_steps(self.world, num_further))
        self.tools = [*{step.tool: step.definition for step in self.steps}.values()]

    @property
    def goal(self) -> str:
        """What the user wants, in words."""
        ships = ", ".join(defect.ship for defect in self.world.defects)
        return f"The totals of these ships may be wrong: {ships}. Repair them." if ships else "Look at the ledgers."


def _steps(world: World, num_further: int) -> list[Expected]:
    steps = [_step("list_files", "list the ledgers", world.list_files)]
    steps += [_read(world, file) for file in sorted(world.files)[:num_further]]
    for defect in world.defects:
        stem = defect.file.removesuffix(".csv")
        steps += [
            _step(
                f"find_{defect.ship.lower().replace(' ', '_')}",
                f"find {defect.ship}",
                world.find_text,
                text=defect.ship,
            ),
            _read(world, defect.file),
            _step(
                f"patch_{stem}",
                f"correct the total of {defect.ship} in {defect.file}",
                world.write_patch,
                file=defect.file,
                old=defect.line,
                new=defect.repaired,
            ),
            _step("run_check", "check the totals of all ledgers", world.run_check),
        ]
    return [*steps, _step("finish", "close the books", world.finish)]


def _read(world: World, file: str) -> Expected:
    return _step(f"read_{file.removesuffix('.csv')}", f"read {file}", world.read_file, file=file)


def _step(tool: str, what: str, work: Callable[..., str], **arguments: str) -> Expected:
    return Expected(tool, arguments, what, partial(work, **arguments))
