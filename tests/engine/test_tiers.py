"""Tiers in a whole engine: lanes, suspended steps, shared prefixes and preemption never change a token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ultrafast import Engine
from ultrafast.engine.native import KV_BLOCK
from ultrafast.engine.sequence import Sequence
from ultrafast.engine.tiers import DEFAULT_TIERS, TIERS, Tiers
from ultrafast.types import FinishReason, GenerateRequest, SamplingParams

OpenEngine = Callable[..., Engine]


def request(first: int, length: int, tier: str = "default", *, max_tokens: int = 20, salt: str = "") -> GenerateRequest:
    prompt = [3 + (first + 7 * i) % 270 for i in range(length)]
    params = SamplingParams(max_tokens=max_tokens, temperature=0.8, seed=first, ignore_eos=True)
    return GenerateRequest(prompt, params, tier, cache_salt=salt)


def finish(engine: Engine, sequences: list[Sequence]) -> list[list[int]]:
    tokens: dict[Sequence, list[int]] = {sequence: [] for sequence in sequences}
    while any(sequence.finish_reason is None for sequence in sequences):
        for sequence, delta in engine.step():
            tokens[sequence] += delta.token_ids
    return list(tokens.values())


@pytest.fixture
def alone(open_engine: OpenEngine) -> Callable[[GenerateRequest], list[int]]:
    """The tokens of a request on an engine that shares nothing and serves nothing else."""
    engine = open_engine(threads=1, cache_mib=0)
    return lambda asked: finish(engine, [engine.add(replace(asked, tier="default"))])[0]


def test_a_suspended_step_goes_on_after_the_urgent_one(open_engine: OpenEngine) -> None:
    engine = open_engine(threads=2, layers=4)
    solo = open_engine(threads=1, layers=4, cache_mib=0)
    shared = [request(i, 30 + 40 * i, ("fast", "default", "flex")[i]) for i in range(3)]
    urgent = [request(10 + i, 20 + i, "ultrafast") for i in range(12)]
    sequences = [engine.add(asked) for asked in shared]
    suspended = 0
    while len(sequences) < 15:
        engine.preempt()  # whatever runs next, if it is the shared lane, stops within a step
        if engine._scheduler.suspended:
            suspended += 1
            sequences.append(engine.add(urgent[len(sequences) - 3]))
        engine.step()
        engine._scheduler.check_integrity()
    while engine.has_work:
        engine.step()
    assert suspended == 12
    for sequence, asked in zip(sequences, shared + urgent, strict=True):
        output = list(sequence.token_ids)[len(asked.prompt_ids) :]
        assert output == finish(solo, [solo.add(replace(asked, tier="default"))])[0]


def test_cancelling_in_a_suspended_step_frees_all_blocks(open_engine: OpenEngine) -> None:
    engine = open_engine(threads=1, layers=4, cache_mib=0)
    for leave in (0, 1, 2):
        sequences = [engine.add(request(i, 12)) for i in range(2)]
        engine.preempt()
        engine.step()
        assert engine._scheduler.suspended is not None
        for sequence in sequences[:leave]:
            engine.cancel(sequence)
            engine._scheduler.check_integrity()
        assert (engine._scheduler.suspended is None) is (leave == 2)
        for tokens in finish(engine, sequences[leave:]):
            assert len(tokens) == 20
        assert engine.stats()["free_blocks"] == engine.stats()["num_blocks"]


@pytest.mark.parametrize("tier", TIERS)
def test_a_prefix_is_computed_once(
    open_engine: OpenEngine, alone: Callable[[GenerateRequest], list[int]], tier: str
) -> None:
    engine = open_engine(threads=1)
    long = request(5, 200, tier)
    (first,) = finish(engine, [one := engine.add(long)])
    (second,) = finish(engine, [two := engine.add(long)])
    assert first == second == alone(long)
    assert one.usage.cached_tokens == 0
    assert two.usage.cached_tokens == 199  # all but the last token, which must be computed
    other = replace(long, prompt_ids=[*long.prompt_ids[:150], 9, 9, 9])
    (third,) = finish(engine, [three := engine.add(other)])
    assert third == alone(other)
    assert three.usage.cached_tokens == 150  # two blocks and a part of one


def test_a_conversation_goes_on_where_it_ended(
    open_engine: OpenEngine, alone: Callable[[GenerateRequest], list[int]]
) -> None:
    engine = open_engine(threads=1)
    asked = request(1, 50)
    for turn in range(5):
        (answer,) = finish(engine, [sequence := engine.add(asked)])
        assert answer == alone(asked)
        if turn:
            assert sequence.usage.cached_tokens == len(asked.prompt_ids) - 4  # the last token was never computed
        asked = replace(asked, prompt_ids=[*asked.prompt_ids, *answer, 7, 8, 9])


def test_a_running_prompt_is_shared(open_engine: OpenEngine) -> None:
    engine = open_engine(threads=1)
    long = request(5, 3 * KV_BLOCK + 9, max_tokens=40)
    first = engine.add(long)
    while first.num_output == 0:
        engine.step()
    second = engine.add(long)
    both = finish(engine, [first, second])
    assert second.usage.cached_tokens == 3 * KV_BLOCK
    assert both[0] == both[1][-len(both[0]) :]


def test_other_salts_share_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine(threads=1)
    answers = []
    for salt in ("", "a", "b", "a"):
        sequence = engine.add(request(5, 200, salt=salt))
        answers += finish(engine, [sequence])
        assert sequence.usage.cached_tokens == (199 if len(answers) == 4 else 0)
    assert all(answer == answers[0] for answer in answers)


def test_eviction_under_pressure_changes_no_token(
    open_engine: OpenEngine, alone: Callable[[GenerateRequest], list[int]]
) -> None:
    few = {tier: replace(policy, slots=2) for tier, policy in DEFAULT_TIERS.policies.items()}
    engine = open_engine(threads=1, context=256, tiers=Tiers(few))
    requests = [request(i % 3, 60 + 40 * (i % 4)) for i in range(40)]
    expected = [alone(asked) for asked in requests[:12]]
    for i, asked in enumerate(requests):
        assert finish(engine, [engine.add(asked)])[0] == expected[i % 12]
        engine._scheduler.check_integrity()


def test_who_gave_way_ends_with_the_same_tokens(
    open_engine: OpenEngine, alone: Callable[[GenerateRequest], list[int]]
) -> None:
    """Every slot is taken by `flex`; others come, take them, and leave."""
    few = {tier: replace(policy, slots=3) for tier, policy in DEFAULT_TIERS.policies.items()}
    engine = open_engine(threads=1, tiers=Tiers(few))
    flex = [request(i, 70, "flex", max_tokens=440) for i in range(3)]
    running = [engine.add(asked) for asked in flex]
    tokens: dict[Sequence, list[int]] = {sequence: [] for sequence in running}
    while min(sequence.num_output for sequence in running) < 10:
        for sequence, delta in engine.step():
            tokens[sequence] += delta.token_ids
    for tier in ("default", "fast", "fast", "default"):
        tokens[engine.add(request(50 + len(tokens), 30, tier))] = []
    while engine.has_work:
        for sequence, delta in engine.step():
            tokens[sequence] += delta.token_ids
        engine._scheduler.check_integrity()
    assert sum(sequence.num_preempted for sequence in running) >= 3
    for sequence, got in tokens.items():
        assert got == alone(sequence.request)
        assert sequence.finish_reason is FinishReason.LENGTH
