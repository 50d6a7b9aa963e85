"""What every case gets: a model, words, a place for its findings; and a client, where there is a server."""

from __future__ import annotations

import asyncio
import gc
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tier_cases.client import Client
from tier_cases.figures import Findings
from tier_cases.timeline import Span, touch
from tier_cases.words import Words

_BEAT_S = 0.1
_STANDSTILL_S = 1.0  # virtual machines are suspended now and then


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


@dataclass
class Bench(Run):
    """One case that asks a server.

    Attributes:
        standstills: spans in which the machine as a whole did not run. What they touch does not count.
    """

    client: Client
    standstills: list[Span] = field(default_factory=list)

    @asynccontextmanager
    async def watching_itself(self) -> AsyncIterator[None]:
        """Note under ``client`` what share of one core this process takes meanwhile; no garbage collection in it."""
        gc.disable()
        wall, used = time.perf_counter(), time.process_time()
        heart = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            heart.cancel()
            self.found.add("client", (time.process_time() - used) / (time.perf_counter() - wall))
            gc.enable()

    async def _beat(self) -> None:
        """Note when nothing ran here for long, which no other process can cause: the whole machine stood still."""
        last = time.perf_counter()
        while True:
            await asyncio.sleep(_BEAT_S)
            now = time.perf_counter()
            if now - last > _STANDSTILL_S:
                self.standstills.append((last, now))
                self.found.facts["seconds in which the machine stood still"] = [
                    round(b - a) for a, b in self.standstills
                ]
            last = now

    def undisturbed(self, start: float, end: float) -> bool:
        """Whether the machine ran from ``start`` to ``end``."""
        return not any(touch((start, end), standstill) for standstill in self.standstills)


def fresh_salt() -> str:
    """A cache salt of its own: neither prefixes nor drafts come from requests before."""
    return secrets.token_hex(8)
