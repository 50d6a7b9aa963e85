"""Ultrafast itself, through the same calls that its service makes."""

from __future__ import annotations

import time
from pathlib import Path

from engines.task import Setting, Task
from ultrafast.engine.engine import Engine
from ultrafast.types import GenerateRequest, SamplingParams


def model_file(path: Path, variant: str) -> Path:
    """The file as it is: weights are repacked while loading."""
    return path


class Ultrafast:
    """An engine for each number of threads; the second is loaded when it is first needed."""

    def __init__(self, path: Path, threads: int) -> None:
        self._path = path
        self._threads = threads
        self._engines = {threads: Engine(path, threads=threads)}
        self.version = f"{_version()}, {self._engines[threads].isa}"

    def settings(self, task: Task) -> list[Setting]:
        return [Setting(task.threads or self._threads)]

    def seconds(self, task: Task, setting: Setting) -> float:
        engine = self._engines.get(setting.threads)
        if engine is None:
            engine = self._engines[setting.threads] = Engine(self._path, threads=setting.threads)
        params = SamplingParams(max_tokens=task.tokens + 1, ignore_eos=True)
        sequences = [engine.add(GenerateRequest(prompt, params)) for prompt in task.prompts()]
        start = time.perf_counter()
        while any(sequence.num_output == 0 for sequence in sequences):
            engine.step()
        if task.tokens:
            start = time.perf_counter()
            while engine.has_work:
                engine.step()
        return time.perf_counter() - start


def load(path: Path, variant: str, threads: int) -> Ultrafast:
    return Ultrafast(path, threads)


def _version() -> str:
    from importlib.metadata import version

    return version("ultrafast")
