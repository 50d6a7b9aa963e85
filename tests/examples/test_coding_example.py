"""The coding agent: its tools stay inside the copy, and ten guided steps mend the repository whatever the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.coding.agent import Step, run_agent
from examples.coding.plan import GUIDED, REPOSITORY, free_tools, guided_tools
from examples.coding.workspace import Workspace, copy_of
from examples.endpoint import endpoints, options
from support.client_servers import answering, call


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with copy_of(REPOSITORY) as copy:
        yield copy


def arguments_of(tools: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The last value of each list, and a short text where there is none."""
    (tool,) = (tool for tool in tools if tool["name"] == name)
    properties = tool["parameters"]["properties"]
    return {key: schema.get("enum", ["Because."])[-1] for key, schema in properties.items()}


def agent(*scripts: str, socket: bool = False, free: bool = False, max_steps: int = 20) -> tuple[list[Step], bool]:
    async def main(url: str) -> tuple[list[Step], bool]:
        asked = options("x", "y").parse_args(["--url", url, "--tier", "ultrafast"])
        async with endpoints(asked) as (endpoint,):
            with copy_of(REPOSITORY) as workspace:
                steps = await run_agent(endpoint, workspace, socket=socket, free=free, max_steps=max_steps)
                return steps, workspace.passes()

    with answering(*scripts) as server:
        return asyncio.run(main(server.url))


def test_the_repository_has_a_failing_test(workspace: Workspace) -> None:
    said = workspace.call("run_tests", {})
    assert "FAIL: test_ten_pieces_are_cheaper" in said
    assert "failures=2" in said
    assert not workspace.passes()
    assert said == workspace.call("run_tests", {})  # nothing in it differs from run to run


@pytest.mark.parametrize("socket", [False, True])
def test_ten_guided_steps_mend_it(socket: bool) -> None:
    tools = guided_tools()
    steps, passes = agent(*(call(name, **arguments_of(tools, name)) for name in GUIDED), socket=socket)
    assert [step.tool for step in steps] == GUIDED
    assert len(GUIDED) == 10
    assert passes
    assert all(step.model_s > 0 and step.tool_s >= 0 for step in steps)
    assert steps[0].why == "Because."


def test_the_original_is_left_alone() -> None:
    before = {path: path.read_bytes() for path in REPOSITORY.rglob("*") if path.is_file()}
    with copy_of(REPOSITORY) as workspace:
        workspace.call("write_file", {"path": "billing/rates.py", "content": "x"})
        assert workspace.call("read_file", {"path": "billing/rates.py"}) == "x"
        assert "billing/rates.py:1: x" in workspace.call("search", {"text": "x"})
    assert {path: path.read_bytes() for path in REPOSITORY.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "billing/../../x", "link/x"])
@pytest.mark.parametrize("name", ["read_file", "write_file"])
def test_nothing_outside_is_read_or_written(tmp_path: Path, path: str, name: str) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    said = Workspace(root).call(name, {"path": path, "content": "x"})
    assert said == f"That failed: {path} is outside of the repository"
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("fly", {}, "There is no tool 'fly'."),
        ("read_file", {}, "The argument 'path' is missing."),
        ("read_file", {"path": "nowhere.py"}, "That failed:"),
        ("read_file", {"path": "billing"}, "That failed:"),
        ("search", {"text": "no such thing"}, "Nothing has it."),
        ("read_file", {"path": "a\0b"}, "That failed:"),
    ],
)
def test_what_goes_wrong_is_the_answer(workspace: Workspace, name: str, arguments: dict[str, Any], said: str) -> None:
    assert workspace.call(name, arguments).startswith(said)


def test_a_free_run_ends_when_the_model_finishes() -> None:
    names = {tool["name"] for tool in free_tools()}
    assert names == set(GUIDED)
    scripts = [call("list_files", why="Look."), call("finish", summary="Done.")]
    steps, passes = agent(*scripts, free=True)
    assert [(step.tool, step.why) for step in steps] == [("list_files", "Look."), ("finish", "Done.")]
    assert not passes


def test_a_free_run_ends_with_its_steps_or_without_a_call() -> None:
    steps, _ = agent(call("run_tests", why=""), free=True, max_steps=2)
    assert [step.tool for step in steps] == ["run_tests"] * 2
    steps, _ = agent("I think it is fine.", free=True)
    assert [step.tool for step in steps] == [""]


def test_guided_values_are_of_the_repository() -> None:
    tools = {tool["name"]: tool["parameters"]["properties"] for tool in guided_tools()}
    for path in tools["read_file"]["path"]["enum"]:
        assert (REPOSITORY / path).is_file()
    assert json.dumps(tools)  # plain JSON
