"""The service loop at twice what its engine can run at once: everyone is answered in turn, and nothing leaks."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from support.engines import assert_idle
from support.mixed import SLOTS, Answer, Mix, Solo, crowded_engine
from ultrafast import Engine
from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.sequence import Sequence
from ultrafast.engine.tiers import DEFAULT, TIERS, ULTRAFAST
from ultrafast.errors import RequestError
from ultrafast.types import GenerateRequest, TokenDelta

NUM_REQUESTS = 300
MOST_OPEN = 2 * (SLOTS[ULTRAFAST] + SLOTS[DEFAULT])
REFUSALS = {(429, "rate_limit_exceeded"), (429, "resource_unavailable")}


class Watch:
    """Notes at which step each sequence of an engine arrived, started and ended."""

    def __init__(self, engine: Engine) -> None:
        self.steps = 0
        self.arrived: dict[Sequence, int] = {}  # in order of arrival, as the others in theirs
        self.started: dict[Sequence, int] = {}
        self.ended: dict[Sequence, int] = {}
        add, step, cancel = engine.add, engine.step, engine.cancel

        def watched_add(*args: Any, **kwargs: Any) -> Sequence:
            sequence = add(*args, **kwargs)
            self.arrived[sequence] = self.steps
            return sequence

        def watched_step() -> list[tuple[Sequence, TokenDelta]]:
            deltas = step()
            # A step that was suspended counts once, when it is over.
            self.steps += engine._scheduler.suspended is None
            for sequence in self.arrived:
                if sequence.timings.started and sequence not in self.started:
                    self.started[sequence] = self.steps
                if sequence.finish_reason is not None:
                    self.ended.setdefault(sequence, self.steps)
            engine._scheduler.check_integrity()
            return deltas

        def watched_cancel(sequence: Sequence) -> None:
            cancel(sequence)
            self.ended.setdefault(sequence, self.steps)

        engine.add, engine.step, engine.cancel = watched_add, watched_step, watched_cancel  # type: ignore[method-assign]

    def check(self) -> None:
        """Nobody waited while there was nothing to wait for, nor for those of its tier that came later."""
        for sequence, arrived in self.arrived.items():
            until = self.started.get(sequence, self.ended[sequence])
            others = [
                s for s in self.arrived if s is not sequence and self.arrived[s] <= until <= self.ended[s] + until
            ]
            in_the_way = [s for s in others if self.ended[s] >= arrived]
            work = sum((len(s.request.prompt_ids) + s.max_tokens) * (1 + s.num_preempted) for s in in_the_way)
            assert until - arrived <= work
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
    watch = Watch(engine)
    refused: list[RequestError] = []

    async def ask(loop: EngineLoop, room: asyncio.Semaphore, request: GenerateRequest, expected: Answer) -> None:
        async with room:
            for _ in range(rng.randrange(40)):
                await asyncio.sleep(0)
            try:
                stream = await loop.submit(request)
            except RequestError as error:
                refused.append(error)
                return
            enough = rng.randrange(request.params.max_tokens or 1) if rng.random() < 0.3 else None
            answer = await read(stream, enough)
            assert answer.starts(expected) if enough is not None else answer == expected

    async def main() -> None:
        loop = EngineLoop(engine)
        loop.start()
        room = asyncio.Semaphore(MOST_OPEN)
        async with asyncio.timeout(300):
            await asyncio.gather(*(ask(loop, room, *pair) for pair in asked))
            await loop.drain()
        stats = engine.stats()
        assert (stats["running"], stats["waiting"]) == (0, 0)
        assert stats["free_blocks"] + stats["cached_blocks"] == stats["num_blocks"]
        assert all(loop.admission.num_open(tier) == loop.admission.num_waiting(tier) == 0 for tier in TIERS)
        watch.check()
        await loop.close()

    asyncio.run(main())
    assert_idle(engine)
    assert {(error.status, error.code) for error in refused} <= REFUSALS
    assert len(watch.arrived) + len(refused) > NUM_REQUESTS * 0.8  # the others left before the engine took them
