"""Whatever runs beside a request, is cached, drafted, cancelled or preempted: it answers as if it were alone."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from support.engines import assert_idle
from support.mixed import Answer, Mix, Solo, crowded_engine
from ultrafast import Engine
from ultrafast.engine.sequence import Sequence
from ultrafast.types import GenerateRequest


class Crowd:
    """Requests on one engine, stepped by hand, each compared with its expected answer when it ends."""

    def __init__(self, engine: Engine, rng: random.Random) -> None:
        self.engine = engine
        self.rng = rng
        self.open: dict[Sequence, tuple[Answer, Answer]] = {}  # so far, expected
        self.num_preempted = self.num_suspended = self.num_cached = self.num_evicted = 0
        self.num_accepted = self.num_rejected = 0
        evict = engine._scheduler.cache.evict

        def counted(count: int) -> int:
            self.num_evicted += (evicted := evict(count))
            return evicted

        engine._scheduler.cache.evict = counted  # type: ignore[method-assign]

    def add(self, request: GenerateRequest, expected: Answer) -> None:
        self.open[self.engine.add(request)] = Answer(), expected

    def cancel(self, sequence: Sequence) -> None:
        self.engine.cancel(sequence)
        answer, expected = self.open.pop(sequence)
        assert answer.starts(expected)
        assert sequence.usage.completion_tokens == len(answer.token_ids)
        self.count(sequence)

    def leave_and_retry(self) -> None:
        """Leave a suspended step and ask again at once: nobody may read or take what that step still writes."""
        suspended = self.engine._scheduler.suspended
        here = [sequence for sequence, _ in suspended.entries if sequence in self.open] if suspended else []
        if here:
            sequence = self.rng.choice(here)
            _, expected = self.open[sequence]
            self.cancel(sequence)
            self.add(replace(sequence.request, tier="ultrafast"), expected)

    def step(self) -> None:
        if self.rng.random() < 0.95:
            self.rng.choice([self.engine.preempt, self.engine.interrupt])()  # the burst to come ends after a step
        for sequence, delta in self.engine.step():
            answer, expected = self.open[sequence]
            answer.add(delta)
            if answer.finish_reason is not None:
                assert answer == expected
                del self.open[sequence]
                self.count(sequence)
        self.num_suspended += self.engine._scheduler.suspended is not None
        self.engine._scheduler.check_integrity()

    def count(self, sequence: Sequence) -> None:
        self.num_preempted += sequence.num_preempted
        usage = sequence.usage
        self.num_cached += usage.cached_tokens
        self.num_accepted += usage.accepted_draft_tokens
        self.num_rejected += usage.rejected_draft_tokens


@pytest.mark.parametrize(("seed", "threads", "count"), [(1, 1, 130), (2, 1, 100), (3, 2, 70)])
def test_every_answer_is_the_solo_answer(
    tiny_model_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, threads: int, count: int
) -> None:
    rng = random.Random(seed)
    with crowded_engine(tiny_model_path, monkeypatch, threads=threads) as engine:
        crowd = Crowd(engine, rng)
        waiting = list(Mix(rng, Solo(tiny_model_path)).requests(count))
        while waiting or crowd.open:
            while waiting and len(crowd.open) < rng.randrange(1, 14):
                crowd.add(*waiting.pop())
            if crowd.open and rng.random() < 0.03:
                crowd.cancel(rng.choice(list(crowd.open)))
            if rng.random() < 0.3:
                crowd.leave_and_retry()
            crowd.step()
        assert_idle(engine)
        # Otherwise the test would show less than it says.
        assert crowd.num_preempted > 0
        assert crowd.num_suspended > 0
        assert crowd.num_cached > 0
        assert crowd.num_evicted > 0
        assert crowd.num_accepted > 0
        assert crowd.num_rejected > 0
