"""The task: any number of steps, the same every time, whose tools allow one call each and do real work."""

from __future__ import annotations

import jsonschema
import pytest

from ultrafast.bench.agent.task import MAX_STEPS, MIN_STEPS, Task
from ultrafast.bench.client.call import ToolCall


@pytest.mark.parametrize("num_steps", range(MIN_STEPS, MAX_STEPS + 1))
def test_the_steps_repair_every_ledger(num_steps: int) -> None:
    task = Task(num_steps)
    assert len(task.steps) == num_steps
    assert len(task.tools) <= 128  # what APIs take
    assert len(task.world.defects) == (num_steps - 2) // 4
    results = [step.work() for step in task.steps]
    assert results[0].splitlines() == sorted(task.world.files)
    assert results[-1] == f"closed: {len(task.world.files)} ledgers checked, 0 totals wrong"


def test_ten_steps_and_what_their_tools_find() -> None:
    task = Task(10)
    assert [step.tool.split("_")[0] for step in task.steps] == [
        "list", "find", "read", "patch", "run", "find", "read", "patch", "run", "finish",
    ]  # fmt: skip
    first, second = task.world.defects
    results = [step.work() for step in task.steps]
    assert first.line in results[1]
    assert first.line in results[2]
    assert results[3] == f"1 line of {first.file} changed"
    assert second.ship in results[4]
    assert results[4].endswith("3 ledgers checked, 1 totals wrong")
    assert second.line in results[5]
    assert results[8] == "3 ledgers checked, 0 totals wrong"


def test_it_is_the_same_task_every_time() -> None:
    one, other = Task(14), Task(14)
    assert one.world.files == other.world.files
    assert one.tools == other.tools
    assert [step.work() for step in one.steps] == [step.work() for step in other.steps]


def test_a_schema_allows_the_expected_arguments_alone() -> None:
    for step in Task(10).steps:
        function = step.definition["function"]
        assert function["strict"] is True
        jsonschema.validate(dict(step.arguments), function["parameters"])
        for wrong in ({**step.arguments, "more": "x"}, {**step.arguments, **dict.fromkeys(step.arguments, "x")}):
            if wrong != step.arguments:
                with pytest.raises(jsonschema.ValidationError):
                    jsonschema.validate(wrong, function["parameters"])


@pytest.mark.parametrize(
    ("calls", "problem"),
    [
        ([("read_north_quay", '{"file": "north_quay.csv"}')], None),
        ([("read_north_quay", '{"file":"north_quay.csv"}')], None),
        ([], "no call"),
        ([("finish", "{}")], "a call of finish"),
        ([("read_north_quay", '{"file": "south_quay.csv"}')], "other arguments"),
        ([("read_north_quay", '{"file": "north_quay.csv", "x": 1}')], "other arguments"),
        ([("read_north_quay", '{"file": "nor')], "a call whose arguments are no JSON object"),
        ([("read_north_quay", "[]")], "a call whose arguments are no JSON object"),
        ([("read_north_quay", "[" * 100_000)], "a call whose arguments are no JSON object"),
        ([("read_north_quay", '{"file": "north_quay.csv"}')] * 2, "2 calls"),
    ],
)
def test_an_answer_is_judged(calls: list[tuple[str, str]], problem: str | None) -> None:
    step = next(step for step in Task(10).steps if step.tool == "read_north_quay")
    assert step.problem([ToolCall("c", name, arguments) for name, arguments in calls]) == problem
