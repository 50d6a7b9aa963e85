"""Troubles that users of other engines have reported, tried on this one."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from support.engines import OpenEngine, assert_idle
from support.mixed import CONTEXT, Answer, Solo, answers, crowded_engine
from ultrafast.engine.sequence import Sequence
from ultrafast.engine.tiers import TIERS
from ultrafast.types import GenerateRequest, SamplingParams


def request(first: int, length: int, tier: str = "default", max_tokens: int = 30, **params: object) -> GenerateRequest:
    prompt = [3 + (first + 11 * i) % 270 for i in range(length)]
    return GenerateRequest(prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=True, **params), tier)  # type: ignore[arg-type]


@pytest.mark.parametrize("suspended", [False, True])
@pytest.mark.parametrize("tier", ["ultrafast", "fast"])
def test_urgent_work_starts_at_once_when_lesser_work_holds_everything(
    tiny_model_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str, suspended: bool
) -> None:
    """https://github.com/vllm-project/vllm/issues/40004: a lesser running request could not be pushed out."""
    with crowded_engine(tiny_model_path, monkeypatch, slots=dict.fromkeys(TIERS, 3), num_blocks=24) as engine:
        flex = [request(i, CONTEXT - 440, "flex", max_tokens=440, temperature=0.8, seed=i) for i in range(3)]
        got: dict[Sequence, Answer] = {engine.add(asked): Answer() for asked in flex}
        victims = list(got)

        def step() -> None:
            for sequence, delta in engine.step():
                got[sequence].add(delta)
            engine._scheduler.check_integrity()

        while min(sequence.num_output for sequence in victims) < 5 or (suspended and not engine._scheduler.suspended):
            (engine.preempt if suspended else engine.interrupt)()
            step()
        assert engine._scheduler.pool.num_free == engine._scheduler.cache.num_evictable == 0
        urgent = engine.add(request(9, 20, tier))
        got[urgent] = Answer()
        step()  # ends the suspended step, which needs its blocks
        if suspended:
            step()
        assert urgent.timings.started > 0
        assert sum(sequence.num_preempted for sequence in victims) == 1
        while engine.has_work:
            step()
        solo = Solo(tiny_model_path)
        assert all(answer == solo(sequence.request) for sequence, answer in got.items())
        assert_idle(engine)


def test_cancels_and_retries_over_a_common_prefix_corrupt_nobody(
    tiny_model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/sgl-project/sglang/issues/23392: two early cancels of eight spoiled the other answers."""
    solo, rng = Solo(tiny_model_path), random.Random(14)
    prefix = [rng.randrange(3, solo.vocab_size) for _ in range(128)]
    asked = [
        GenerateRequest([*prefix, 10 + i, *range(20, 20 + 9 * i)], SamplingParams(max_tokens=12, ignore_eos=True), tier)
        for i, tier in enumerate(TIERS * 2)
    ]
    expected = [solo(one) for one in asked]
    with crowded_engine(tiny_model_path, monkeypatch) as engine:
        for _ in range(200):
            running = [engine.add(one) for one in asked]
            got = {sequence: Answer() for sequence in running}
            leaving = {index: rng.randrange(12) for index in rng.sample(range(8), 2)}  # at which step
            steps = 0
            while engine.has_work or leaving:
                for index in [index for index, leaves in leaving.items() if leaves == steps]:
                    del leaving[index]
                    engine.cancel(running[index])
                    running[index] = engine.add(asked[index])
                    got[running[index]] = Answer()
                rng.choice([engine.preempt, engine.interrupt])()
                for sequence, delta in engine.step():
                    got[sequence].add(delta)
                engine._scheduler.check_integrity()
                steps += 1
            assert [got[sequence] for sequence in running] == expected
        assert_idle(engine)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_seed_gives_one_text_alone_in_a_batch_behind_others_and_after_a_cache_hit(
    tiny_model_path: Path, open_engine: OpenEngine, temperature: float
) -> None:
    """https://github.com/ggml-org/llama.cpp/issues/7052: one prompt in eight slots gave up to eight texts."""
    asked = request(3, 150, temperature=temperature, seed=42)
    expected = Solo(tiny_model_path)(asked)
    others = [request(50 + i, 20 * i + 1, TIERS[i % 4], temperature=1.0, seed=i) for i in range(8)]
    for tier in TIERS:
        engine = open_engine(tiny_model_path, threads=1)
        this = replace(asked, tier=tier)
        assert answers(engine, [this]) == [expected]
        engine._scheduler.cache.clear()
        assert answers(engine, [this] * 8) == [expected] * 8
        assert answers(engine, [*others, this])[-1] == expected
        hit = engine.add(this)
        assert answers(engine, [this]) == [expected]
        assert hit.usage.cached_tokens == 149
    other_seed = replace(asked, params=replace(asked.params, seed=43))
    assert (answers(engine, [other_seed]) == [expected]) is (temperature == 0.0)
