"""Tasks and recorded requests, from JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ultrafast.bench.ab.run.records import Task
from ultrafast.bench.records import read_log
from ultrafast.errors import ConfigError

PATHS = {"messages": "chat/completions", "input": "responses", "prompt": "completions"}
"""Where a recorded request goes, by the field that only its API has."""


def read_tasks(path: Path) -> list[Task]:
    """One JSON object a line; its ``id``, if it has one, names the task, else the number of the line does.

    Raises:
        ConfigError: the file is something else, is empty, or has an id twice.
    """
    return _named(path, read_log(path))


def repeats(number: int) -> list[Task]:
    """The same thing so many times."""
    return [Task(str(i), {"id": str(i)}) for i in range(1, number + 1)]


def read_requests(path: Path) -> list[Task]:
    """Recorded requests: one body a line, or the bodies of one history as ``{"id": …, "steps": [body, …]}``.

    Raises:
        ConfigError: the file is something else.
    """
    tasks = _named(path, read_log(path))
    for number, task in enumerate(tasks, 1):
        for body in steps_of(task):
            if not isinstance(body, dict) or path_of(body) is None:
                raise ConfigError(
                    f"{path}, task {number}: a request has messages, input or prompt; "
                    "several in a row are the steps of one task"
                )
    return tasks


def steps_of(task: Task) -> list[Any]:
    """The bodies of a recorded task, in order."""
    steps = task.data.get("steps", [task.data])
    return steps if isinstance(steps, list) and steps else [None]


def path_of(body: Mapping[str, Any]) -> str | None:
    """The path of a recorded request, below the base URL."""
    return next((path for name, path in PATHS.items() if name in body), None)


def _named(path: Path, lines: list[dict[str, Any]]) -> list[Task]:
    if not lines:
        raise ConfigError(f"{path}: there is no task in it; it holds one JSON object a line")
    tasks = []
    for number, line in enumerate(lines, 1):
        name = line.get("id", number)
        if not isinstance(name, str | int) or not str(name) or len(str(name)) > 200:
            raise ConfigError(f"{path}, task {number}: id is a word or a number")
        tasks.append(Task(str(name), line))
    names = [task.id for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise ConfigError(f"{path}: two tasks have the id {twice!r}")
    return tasks
