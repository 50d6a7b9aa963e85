"""The service loop at twice what its engine can run at once: everyone is answered in turn, and nothing leaks."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.engines import assert_idle
from support.mixed import SLOTS, Answer, Mix, Solo, crowded_engine
from ultrafast import Engine
from ultrafast.engine import engine as engine_module
from ultrafast.engine import scheduler as scheduler_module
from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.native import Lane
from ultrafast.engine.scheduler import Burst
from ultrafast.engine.sequence import Sequence
from ultrafast.engine.tiers import DEFAULT, TIERS, ULTRAFAST
from ultrafast.errors import RequestError
from ultrafast.types import GenerateRequest, TokenDelta

NUM_REQUESTS = 300
MOST_OPEN = 2 * (SLOTS[ULTRAFAST] + SLOTS[DEFAULT])
AGING_STEPS = 50
REFUSALS = {(429, "rate_limit_exceeded"), (429, "resource_unavailable")}


class Watch:
    """Notes at which step of its lane each sequence of an engine arrived, started and ended.

    The engine's clock is replaced by one that goes by looks at it, so that waiting is a matter of steps alone.
    """

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = dict.fromkeys(Lane, 0)
        self.arrived: dict[Sequence, int] = {}  # in order of arrival
        self.started: dict[Sequence, int] = {}
        self.ended: dict[Sequence, int] = {}
        ticks = itertools.count(1)
        monkeypatch.setattr(engine_module, "time", SimpleNamespace(monotonic=lambda: 0.001 * next(ticks)))
        # A step looks at the clock at least once.
        monkeypatch.setattr(scheduler_module, "_AGING_S", 0.001 * AGING_STEPS)
        self._wrap(engine)

    def _wrap(self, engine: Engine) -> None:
        scheduler = engine._scheduler
        add, step, cancel, finished = engine.add, engine.step, engine.cancel, scheduler.finished

        def watched_add(*args: Any, **kwargs: Any) -> Sequence:
            sequence = add(*args, **kwargs)
            self.arrived[sequence] = self.steps[sequence.lane]
            return sequence

        def watched_step() -> list[tuple[Sequence, TokenDelta]]:
            engine.interrupt()  # no burst is longer than a step
            deltas = step()
            self._look()
            scheduler.check_integrity()
            return deltas

        def watched_cancel(sequence: Sequence) -> None:
            cancel(sequence)
            self._look()

        def watched_finished(burst: Burst) -> None:
            self.steps[burst.lane] += 1
            finished(burst)

        engine.add, engine.step, engine.cancel = watched_add, watched_step, watched_cancel  # type: ignore[method-assign]
        scheduler.finished = watched_finished  # type: ignore[method-assign]

    def _look(self) -> None:
        for sequence in self.arrived:
            steps = self.steps[sequence.lane]
            if sequence.timings.started:
                self.started.setdefault(sequence, steps)
            if sequence.finish_reason is not None:
                self.ended.setdefault(sequence, steps)

    def check(self) -> None:
        """All waits were for those who came before, but for the time until low tiers count as high."""
        order = list(self.arrived)
        for index, (sequence, arrived) in enumerate(self.arrived.items()):
            waited = self.started.get(sequence, self.ended[sequence]) - arrived
            in_the_way = [s for s in order[:index] if s.lane is sequence.lane and self.ended[s] >= arrived]
            # In steps; a prompt takes fewer than a sixteenth of its tokens.
            work = sum((len(s.request.prompt_ids) // 16 + s.max_tokens) * (1 + s.num_preempted) for s in in_the_way)
            assert waited <= 2 * AGING_STEPS + work
        for tier in TIERS:
            in_turn = [s for s in self.arrived if s.tier == tier and s in self.started]
            assert sorted(in_turn, key=lambda s: self.started[s]) == in_turn


async def read(stream: Any, enough: int | None) -> Answer:
    """What comes until the end, or until ``enough`` tokens have come and the reader leaves."""
    answer = Answer()
    if enough != 0:
        async for delta in stream:
            answer.add(delta)
            if enough is not None and len(answer.token_ids) >= enough:
                break
    stream.cancel()
    return answer


@pytest.mark.parametrize("seed", [1])
def test_twice_the_load_with_a_third_of_the_readers_leaving(
    tiny_model_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    asked = list(Mix(rng, Solo(tiny_model_path)).requests(NUM_REQUESTS))
    engine = crowded_engine(tiny_model_path, monkeypatch)
    watch = Watch(engine, monkeypatch)
    refused: list[RequestError] = []

    async def ask(loop: EngineLoop, room: asyncio.Semaphore, request: GenerateRequest, expected: Answer) -> None:
        async with room:
            for _ in range(rng.randrange(40)):
                await asyncio.sleep(0)
            enough = rng.randrange(request.params.max_tokens or 1) if rng.random() < 0.3 else None
            try:
                answer = await read(await loop.submit(request), enough)
            except RequestError as error:
                refused.append(error)
                return
            assert answer.starts(expected) if enough is not None else answer == expected

    async def main() -> None:
        loop = EngineLoop(engine)
        loop.start()
        room = asyncio.Semaphore(MOST_OPEN)
        try:
            async with asyncio.timeout(300):
                await asyncio.gather(*(ask(loop, room, *pair) for pair in asked))
                await loop.drain()
            stats = engine.stats()
            assert (stats["running"], stats["waiting"]) == (0, 0)
            assert stats["free_blocks"] + stats["cached_blocks"] == stats["num_blocks"]
            assert all(loop.admission.num_open(tier) == loop.admission.num_waiting(tier) == 0 for tier in TIERS)
        finally:
            await loop.close()

    asyncio.run(main())
    assert_idle(engine)
    watch.check()
    assert {(error.status, error.code) for error in refused} <= REFUSALS
    assert len(watch.arrived) + len(refused) > NUM_REQUESTS * 0.8  # the others left before the engine took them
