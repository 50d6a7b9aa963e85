"""Tasks that `test_inspect_ai` has `inspect eval` run."""

from __future__ import annotations

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool


@tool
def add() -> Tool:
    async def execute(x: int, y: int) -> int:
        """Add two numbers.

        Args:
            x: The one.
            y: The other.
        """
        return x + y

    return execute


@task
def sums() -> Task:
    samples = [Sample(input=f"What is {x} + 1?", target=str(x + 1)) for x in (1, 2, 3)]
    return Task(dataset=samples, solver=[use_tools(add()), generate()], scorer=includes())


@task
def words() -> Task:
    samples = [Sample(input=f"Repeat this word: {word}", target=word) for word in ("apple", "river", "stone")]
    return Task(dataset=samples, solver=generate(), scorer=includes())
