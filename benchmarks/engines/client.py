"""An engine in another process, which works only while it is asked to."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from engines.task import Task

_FOLDER = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Entrant:
    """An engine and the form in which it gets the model."""

    name: str  # in JSON and for --engines
    title: str
    module: str
    variant: str = "as it is"


class EngineError(Exception):
    """The engine could not be started, or not do a task."""


@dataclass
class Process:
    """A started entrant; `measure` until `close`."""

    entrant: Entrant
    python: Path
    model: Path
    threads: int
    environment: Mapping[str, str]
    log: IO[str]
    version: str = ""
    load_s: float = 0.0
    settings: dict[str, str] = field(default_factory=dict)  # chosen, by task

    def __post_init__(self) -> None:
        command = [str(self.python), "-m", "engines.serve", self.entrant.module, self.entrant.variant]
        self._process = subprocess.Popen(
            [*command, str(self.model), str(self.threads)],
            env={**self.environment, "PYTHONPATH": str(_FOLDER)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        try:
            reply = self._reply()
        except EngineError:
            self.close()
            raise
        self.version, self.load_s = reply["version"], reply["load_s"]

    def measure(self, task: Task) -> float:
        """Tokens per second, of one run; the first for a task tries the settings before.

        Raises:
            EngineError: the engine failed; the message is its own.
        """
        assert self._process.stdin
        try:
            self._process.stdin.write(task.name + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EngineError("the process has ended") from None
        reply = self._reply()
        self.settings[task.name] = reply["setting"]
        return float(reply["speed"])

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"the process ended with code {self._process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise EngineError(reply["error"])
        return reply
