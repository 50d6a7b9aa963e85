"""What every case gets: a model, words, a place for its findings; and a client, where there is a server."""

from __future__ import annotations

import gc
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tier_cases.client import Client
from tier_cases.figures import Findings
from tier_cases.words import Words


@dataclass
class Run:
    """One case.

    Attributes:
        model: the file.
        threads: workers.
        quick: fewer and smaller tries, which show that it works and measure nothing.
        minutes: of the soak.
    """

    name: str
    model: Path
    threads: int
    words: Words
    found: Findings
    rng: Random
    quick: bool
    minutes: float

    def rounds(self, many: int) -> Iterator[int]:
        """Count rounds from 0, telling of each."""
        total = min(many, 2) if self.quick else many
        for number in range(total):
            self.say(f"round {number + 1} of {total}")
            yield number

    def tokens(self, many: int) -> int:
        """Of a prompt or an answer."""
        return many // 8 if self.quick else many

    def say(self, text: str) -> None:
        """Progress."""
        print(f"{self.name}: {text}", file=sys.stderr)

    @contextmanager
    def watching_itself(self) -> Iterator[None]:
        """Note under ``client`` what share of one core this process takes meanwhile; no garbage collection in it."""
        gc.disable()
        wall, used = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.found.add("client", (time.process_time() - used) / (time.perf_counter() - wall))
            gc.enable()


@dataclass
class Bench(Run):
    """One case that asks a server."""

    client: Client


def fresh_salt() -> str:
    """A cache salt of its own: neither prefixes nor drafts come from requests before."""
    return secrets.token_hex(8)
