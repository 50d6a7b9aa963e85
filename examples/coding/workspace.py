"""A copy of a repository, and what an agent may do in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_MOST = 4000  # characters of an answer
_TESTS_LIMIT_S = 60


class Workspace:
    """The tools. What goes wrong is their answer: a model can read it and do better."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool by its name; arguments that it does not have are ignored."""
        tools: dict[str, Callable[[], str]] = {
            "list_files": self.list_files,
            "read_file": lambda: self.read_file(str(arguments["path"])),
            "search": lambda: self.search(str(arguments["text"])),
            "write_file": lambda: self.write_file(str(arguments["path"]), str(arguments["content"])),
            "run_tests": self.run_tests,
            "finish": lambda: "Done.",
        }
        if name not in tools:
            return f"There is no tool {name!r}."
        try:
            return tools[name]()[:_MOST]
        except KeyError as error:
            return f"The argument {error} is missing."
        except (OSError, ValueError) as error:
            return f"That failed: {error}".replace(str(self._root), ".")

    def list_files(self) -> str:
        """Paths, one a line."""
        return "\n".join(str(path.relative_to(self._root)) for path in self._files())

    def read_file(self, path: str) -> str:
        """The text of a file."""
        return self._inside(path).read_text(encoding="utf-8")

    def search(self, text: str) -> str:
        """Lines that have the text, with path and number."""
        found = [
            f"{path.relative_to(self._root)}:{number}: {line.strip()}"
            for path in self._files()
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if text in line
        ]
        return "\n".join(found) or "Nothing has it."

    def write_file(self, path: str, content: str) -> str:
        """Replace a file, or make one."""
        target = self._inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")
        return f"{path} has {len(content.splitlines())} lines now."

    def run_tests(self) -> str:
        """What ``unittest`` says. This runs the code that is there, the model's own included."""
        environment = {"PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ.get("PATH", "")}
        try:
            ran = subprocess.run(
                [sys.executable, "-m", "unittest", "discover", "-q", "-t", "."],
                cwd=self._root,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_TESTS_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return f"The tests did not end within {_TESTS_LIMIT_S} s."
        said = re.sub(r" in \d+\.\d+s", "", ran.stdout + ran.stderr).replace(str(self._root), ".")
        return said if len(said) <= _MOST else f"…{said[1 - _MOST :]}"

    def passes(self) -> bool:
        """Whether the tests pass."""
        return self.run_tests().rstrip().endswith("OK")

    def _files(self) -> list[Path]:
        return sorted(path for path in self._root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)

    def _inside(self, path: str) -> Path:
        target = (self._root / path).resolve()
        if not target.is_relative_to(self._root):
            raise ValueError(f"{path} is outside of the repository")
        return target


@contextmanager
def copy_of(repository: Path) -> Iterator[Workspace]:
    """A workspace on a copy that is gone afterwards."""
    with TemporaryDirectory() as folder:
        root = Path(folder, "repository")
        shutil.copytree(repository, root, ignore=shutil.ignore_patterns("__pycache__"))
        yield Workspace(root)
