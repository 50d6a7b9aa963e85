"""What the agent is offered: the tools, free or with the values that a small model may choose among."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent / "repository"
INSTRUCTIONS = (
    "You are a coding agent. A test of this repository fails. Look before you change anything, take one step at a "
    "time, find the cause, mend it, and see that all tests pass. Then finish."
)
TASK = "A test of this repository fails. Find out why, and mend the code, not the test."

GUIDED = [  # which tool each of the ten steps calls; the model chooses among the values that the tool offers
    "list_files",
    "run_tests",
    "read_file",
    "search",
    "read_file",
    "read_file",
    "search",
    "write_file",
    "run_tests",
    "finish",
]
_MENDED = "billing/rates.py"
_TEXT = {"type": "string"}


def guided_tools() -> list[dict[str, Any]]:
    """The tools with lists of values; the one change that they offer mends the repository."""
    source = (REPOSITORY / _MENDED).read_text(encoding="utf-8")
    paths = sorted(path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.rglob("*.py") if path.stat().st_size)
    return _tools(
        path={"type": "string", "enum": paths},
        text={"type": "string", "enum": ["discount_percent", "quantity >", "def total"]},
        target={"type": "string", "enum": [_MENDED]},
        content={"type": "string", "enum": [source.replace("quantity > ", "quantity >= ")]},
        note={"type": "string", "maxLength": 80},
    )


def free_tools() -> list[dict[str, Any]]:
    """The tools as they are."""
    return _tools(path=_TEXT, text=_TEXT, target=_TEXT, content=_TEXT, note=_TEXT)


def _tools(
    *,
    path: Mapping[str, Any],
    text: Mapping[str, Any],
    target: Mapping[str, Any],
    content: Mapping[str, Any],
    note: Mapping[str, Any],
) -> list[dict[str, Any]]:
    why = {"why": note}
    return [
        _tool("list_files", "The paths of all files.", **why),
        _tool("read_file", "The text of a file.", **why, path=path),
        _tool("search", "Lines that contain a text.", **why, text=text),
        _tool("write_file", "Replace a file.", **why, path=target, content=content),
        _tool("run_tests", "Run all tests.", **why),
        _tool("finish", "Say what was wrong, when all tests pass.", summary=note),
    ]


def _tool(name: str, description: str, **parameters: Mapping[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters, "required": list(parameters), "additionalProperties": False}
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": True}
