"""Minutes of random load at twice the capacity: tiers, lengths, shared prefixes, and clients that leave.

As many clients as twice the slots send one request after the other. Each answer is looked at when it has ended, so what
is kept does not grow with time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tier_cases.bench import Bench
from tier_cases.client import Answer
from tier_cases.figures import Figure, Statistic, Target
from tier_cases.timeline import gaps
from tier_cases.words import Messages, said

_TIERS = {"ultrafast": 3, "fast": 5, "default": 9, "flex": 3}  # how often each is asked for
_LENGTHS = ((16, 200, 30), (200, 1500, 8), (2000, 6000, 1))  # prompt tokens: from, to, how often
_MOST_TOKENS = 256
_CANCELLED = 0.3
_PREFIXES = 8
_IDLE_WITHIN_S = 30.0
_SLOTS = 36  # where the server does not say
_RETRY_S = 0.5  # after a 429
_DOCUMENTED = (200, 429)

FIGURES = (
    *(Figure(f"gap_{tier}", f"longest gap of a {tier} stream, by stream", "ms") for tier in _TIERS),
    *(Figure(f"wait_{tier}", f"first token of a {tier} request, waiting included", "s") for tier in _TIERS),
    Figure("longest_gap", "longest gap of all", "ms"),
    Figure("undocumented", "answers that are neither whole nor a 429", "count", Target("<=", 0, Statistic.SUM)),
    Figure(
        "wrong_tier", "streams that name a tier which their header does not", "count", Target("<=", 0, Statistic.SUM)
    ),
    Figure("open_after", "requests still open when all have gone", "count", Target("<=", 0, Statistic.SUM)),
    Figure("blocks_lost", "KV blocks neither free nor cached then", "count", Target("<=", 0, Statistic.SUM)),
    Figure("oldest_wait", "oldest wait", "s", Target("<=", 600, Statistic.LARGEST)),
    Figure("client", "share of a core that the clients take", "%"),
)


@dataclass
class Tally:
    """What became of the requests."""

    outcomes: Counter[str] = field(default_factory=Counter)  # "tier: status code"
    waiting: dict[object, float] = field(default_factory=dict)  # since when, until the first token


async def measure(bench: Bench) -> None:
    before = await _counters(bench)
    clients = 2 * (_slots(before) if before else _SLOTS)
    tally = Tally()
    seconds = 10 if bench.quick else bench.minutes * 60
    end = time.perf_counter() + seconds
    bench.found.facts["clients"] = clients
    bench.found.facts["outcomes"] = tally.outcomes
    prefixes = [bench.words.nonsense(bench.rng, bench.rng.randrange(100, 1000)) for _ in range(_PREFIXES)]
    loads = [Load(bench, tally, Random(bench.rng.random()), prefixes, end) for _ in range(clients)]
    progress = asyncio.create_task(_tell(bench, tally, end))
    try:
        async with bench.watching_itself(), asyncio.TaskGroup() as group:
            for load in loads:
                group.create_task(load.run())
    finally:  # also after Ctrl-C, when all clients leave at once
        progress.cancel()
        await bench.client.close()
        await _look_after(bench)


@dataclass
class Load:
    """One client."""

    bench: Bench
    tally: Tally
    rng: Random
    prefixes: list[str]
    end: float

    async def run(self) -> None:
        while time.perf_counter() < self.end:
            status = await self._request()
            if status == 429:
                await asyncio.sleep(self.rng.uniform(0, 2 * _RETRY_S))

    async def _request(self) -> int:
        (tier,) = self.rng.choices(list(_TIERS), list(_TIERS.values()))
        seed = self.rng.randrange(2**31)
        fields: dict[str, Any] = {"temperature": 1, "seed": seed} if seed % 2 else {}
        tokens = self.rng.randint(1, _MOST_TOKENS)
        leaves = self.rng.random() < _CANCELLED
        call = await self.bench.client.start(self._prompt(), tier=tier, max_tokens=tokens, **fields)
        since = self.tally.waiting[call] = call.sent
        try:
            if leaves and self.rng.random() < 0.3:  # perhaps before anything has come
                await _at_most(self.rng.uniform(0, 2), call.begun())
            else:
                await call.begun()
            if self.bench.undisturbed(since, now := time.perf_counter()):
                self.bench.found.add("oldest_wait", now - since)
        finally:
            del self.tally.waiting[call]
        if leaves:
            await _at_most(self.rng.uniform(0, 4), call.done())
            call.hang_up()
        answer = await call.answer()
        self._note(answer, tier, left=leaves and not answer.complete)
        return answer.status

    def _prompt(self) -> Messages:
        low, high, _ = self.rng.choices(_LENGTHS, [often for *_, often in _LENGTHS])[0]
        own = self.bench.words.nonsense(self.rng, self.rng.randint(low, high))
        return said(f"{self.rng.choice(self.prefixes)} {own}" if self.rng.random() < 0.5 else own)

    def _note(self, answer: Answer, asked: str, *, left: bool) -> None:
        found = self.bench.found
        what = "left" if left else str(answer.status) + (f" {answer.error}" if answer.error else "")
        self.tally.outcomes[f"{asked}: {what}"] += 1
        whole = answer.complete and answer.error is None
        found.add("undocumented", not (left or whole or answer.status == 429))
        if not answer.chunks:
            return
        tier = answer.tier or asked
        found.add("wrong_tier", answer.headers.get("x-ultrafast-tier", tier) != tier)
        if self.bench.undisturbed(answer.sent, answer.chunks[0].at):
            found.add(f"wait_{tier}", answer.first_token_s)
        if pauses := gaps(answer.chunks, without=self.bench.standstills):
            found.add(f"gap_{tier}", max(pauses))
            found.add("longest_gap", max(pauses))


async def _at_most(seconds: float, event: Any) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event
    except TimeoutError:
        pass


async def _tell(bench: Bench, tally: Tally, end: float) -> None:
    while True:
        now = time.perf_counter()
        oldest = now - min(tally.waiting.values(), default=now)
        bench.say(f"{max(0, end - now):.0f} s left, {tally.outcomes.total()} requests, oldest wait now {oldest:.1f} s")
        await asyncio.sleep(10)


async def _counters(bench: Bench) -> dict[str, Any] | None:
    """The server's own, of its one model; None from a server without such."""
    tiers = await bench.client.get("/v1/tiers")
    return tiers and tiers["data"][0]


def _slots(counters: dict[str, Any]) -> int:
    """Requests that run at once: those of `ultrafast` beside those that the other tiers share."""
    slots = {lane["tier"]: int(lane["slots"]) for lane in counters["lanes"]}
    return slots["ultrafast"] + slots["default"]


async def _look_after(bench: Bench) -> None:
    """Wait until the server says that it is idle, then look for what was lost."""
    deadline = time.perf_counter() + _IDLE_WITHIN_S
    while counters := await _counters(bench):
        num_open = sum(lane["running"] + lane["queued"] for lane in counters["lanes"]) + len(counters["requests"])
        if num_open == 0 or time.perf_counter() > deadline:
            break
        await asyncio.sleep(0.2)
    else:
        return
    cache = counters["cache"]
    bench.found.add("open_after", num_open)
    bench.found.add("blocks_lost", cache["blocks"] - cache["free_blocks"] - cache["cached_blocks"])
    bench.found.facts["lanes"] = {
        lane["tier"]: {name: lane[name] for name in ("served", "refused", "downgraded", "cancelled")}
        for lane in counters["lanes"]
    }
    bench.found.facts["cache"] = cache
