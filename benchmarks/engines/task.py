"""What every engine is asked to do: the same prompts of random tokens, then greedy decoding. Standard library only."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

_VOCABULARY = 49152  # of SmolLM2; every id below is a token of the model


@dataclass(frozen=True, slots=True)
class Task:
    """``sequences`` prompts of ``prompt`` tokens, each decoded for ``tokens`` more; with 0 the prompt is timed."""

    name: str
    title: str
    prompt: int
    tokens: int
    sequences: int = 1
    threads: int | None = None  # None: whatever number is fastest

    def speed(self, seconds: float) -> float:
        """Tokens per second."""
        return self.sequences * (self.tokens or self.prompt) / seconds

    def prompts(self) -> list[list[int]]:
        """Token ids; every engine gets the same."""
        ids = random.Random(self.name)
        return [[ids.randrange(_VOCABULARY) for _ in range(self.prompt)] for _ in range(self.sequences)]


TASKS = {
    task.name: task
    for task in (
        Task("decode_64", "decode at 64", 64, 48),
        Task("decode_2048", "decode at 2,048", 2048, 32),
        Task("prompt_512", "prompt of 512", 512, 0),
        Task("sequences_16", "16 sequences", 32, 32, sequences=16),
        Task("one_thread", "one thread, at 64", 64, 48, threads=1),
    )
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run an engine; ``options`` are the engine's own."""

    threads: int
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join((f"{self.threads} thread{'s' * (self.threads != 1)}", *self.options))


class Adapter(Protocol):
    """An engine with its model loaded."""

    version: str

    def settings(self, task: Task) -> list[Setting]:
        """What is worth trying for a task."""
        ...

    def seconds(self, task: Task, setting: Setting) -> float:
        """How long the timed part of the task takes, once."""
        ...


def thread_counts(task: Task, most: int) -> list[int]:
    """Thread counts to try: what the task fixes, else one and all."""
    return [task.threads] if task.threads else sorted({1, most})
