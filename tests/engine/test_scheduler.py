"""Who runs next: pure policy, with sequences that are only numbers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from ultrafast.engine.blocks import BlockPool
from ultrafast.engine.lanes import Turn
from ultrafast.engine.native import KV_BLOCK, Lane
from ultrafast.engine.prefix_cache import PrefixCache
from ultrafast.engine.scheduler import Burst, Scheduler
from ultrafast.engine.sequence import Sequence
from ultrafast.engine.tiers import DEFAULT_TIERS, Tiers
from ultrafast.types import GenerateRequest, SamplingParams, Timings

SHARED = Turn(Lane.SHARED, 1.0, False, 0.05)
URGENT = Turn(Lane.URGENT, 1.0, False, 0.05)


@dataclass(eq=False)
class FakeSequence:
    """What the scheduler sees of a sequence, and how a burst would move it on."""

    prompt: list[int]
    output: int
    tier: str = "default"
    num_blocks_needed: int = 1
    num_computed: int = 0
    num_output: int = 0
    num_preempted: int = 0
    timings: Timings = field(default_factory=Timings)
    blocks: list[int] = field(default_factory=list)

    lane = Sequence.lane
    max_cached = Sequence.max_cached

    @property
    def request(self) -> GenerateRequest:
        return GenerateRequest(self.prompt, SamplingParams(), self.tier)

    @property
    def token_ids(self) -> list[int]:
        return self.prompt + [1] * self.num_output

    @property
    def num_pending(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def is_prefilling(self) -> bool:
        return self.num_pending > 1

    @property
    def finished(self) -> bool:
        return self.num_output >= self.output

    def begin(self, num_cached: int) -> None:
        assert num_cached < len(self.token_ids)
        self.num_computed = num_cached

    def step(self, chunk: int) -> int:
        """One native step; returns the number of rows it took."""
        rows = min(chunk, len(self.token_ids) - self.num_computed)
        self.num_computed += rows
        if self.num_computed == len(self.token_ids):
            self.num_output += 1
        return rows


_numbers = iter(range(10**9))


def fake(prompt: int = 1, output: int = 5, tier: str = "default", arrived: float = 0.0, blocks: int = 0) -> Sequence:
    """A sequence of its own tokens: no other has the same prefix."""
    own = -(-(prompt + output - 1) // KV_BLOCK)
    tokens = [next(_numbers) for _ in range(prompt)]
    made = FakeSequence(tokens, output, tier, blocks or own)
    made.timings.arrived = arrived
    return cast(Sequence, made)


def of(sequence: Sequence) -> FakeSequence:
    return cast(FakeSequence, sequence)


def scheduler(num_blocks: int = 100, max_rows: int = 64, cache: int = 0, **slots: int) -> Scheduler:
    policies = {tier: replace(p, slots=slots.get(tier, p.slots)) for tier, p in DEFAULT_TIERS.policies.items()}
    pool = BlockPool(num_blocks)
    return Scheduler(tiers=Tiers(policies), pool=pool, cache=PrefixCache(pool, cache), max_rows=max_rows)


def add(policy: Scheduler, *sequences: Sequence) -> None:
    for sequence in sequences:
        policy.add(sequence)


def admit(policy: Scheduler, now: float = 0.0) -> list[Sequence]:
    admitted = [admission.sequence for admission in policy.admit(now)]
    for sequence in admitted:
        sequence.timings.started = now
    policy.check_integrity()
    return admitted


def has_work(policy: Scheduler, lane: Lane) -> bool:
    return any(sequence.lane is lane for sequence in policy.running)


def run(policy: Scheduler, burst: Burst) -> int:
    """Make one step of a burst and take out who has finished; returns the rows computed."""
    rows = sum(of(sequence).step(chunk) for sequence, chunk in burst.entries)
    policy.finished(burst)
    for sequence, _ in burst.entries:
        if of(sequence).finished:
            policy.remove(sequence)
    policy.check_integrity()
    return rows


# ---- slots and queue ------------------------------------------------------------------------------------------------


def test_nothing_to_do() -> None:
    policy = scheduler()
    assert admit(policy) == []
    assert not has_work(policy, Lane.SHARED)
    assert not has_work(policy, Lane.URGENT)


def test_first_come_first_served_into_the_slots() -> None:
    policy = scheduler(default=2)
    first, second, third, fourth = (fake(arrived=i) for i in range(4))
    add(policy, first, second, third, fourth)
    assert admit(policy) == policy.running == [first, second]
    assert admit(policy) == []
    policy.remove(first)
    assert admit(policy) == [third]
    assert policy.waiting == [fourth]


def test_higher_tiers_come_first_into_slots_that_became_free() -> None:
    policy = scheduler(default=2)
    flex, default, fast = fake(tier="flex"), fake(tier="default", arrived=1), fake(tier="fast", arrived=2)
    add(policy, flex, default, fast)
    assert admit(policy, now=3) == [fast, default]


def test_a_lane_of_its_own() -> None:
    policy = scheduler(default=1, ultrafast=2)
    shared = [fake(tier=tier) for tier in ("default", "fast", "flex")]
    urgent = [fake(tier="ultrafast", arrived=i) for i in range(3)]
    add(policy, *shared, *urgent)
    assert admit(policy) == [*urgent[:2], shared[1]]
    assert [s for s, _ in policy.burst(URGENT, 32).entries] == urgent[:2]
    assert [s for s, _ in policy.burst(SHARED, 32).entries] == [shared[1]]


@pytest.mark.parametrize(("higher", "lower"), [("fast", "default"), ("fast", "flex"), ("default", "flex")])
def test_a_lower_tier_gives_way(higher: str, lower: str) -> None:
    policy = scheduler(default=2)
    first, second = fake(output=9, tier=lower), fake(output=9, tier=lower, arrived=1)
    add(policy, first)
    admit(policy, now=0)
    add(policy, second)
    admit(policy, now=1)
    urgent = fake(tier=higher, arrived=2)
    add(policy, urgent)
    assert admit(policy, now=2) == [urgent]
    assert policy.running == [first, urgent]  # the youngest gave way
    assert of(second).num_preempted == 1
    policy.remove(urgent)
    assert admit(policy, now=3) == [second]


def test_equals_and_those_who_waited_long_do_not_give_way() -> None:
    policy = scheduler(default=1)
    running = fake(tier="flex", arrived=0.0)
    add(policy, running)
    admit(policy)
    add(policy, fake(tier="flex", arrived=1.0), fake(tier="default", arrived=11.0))
    assert admit(policy, now=11.0) == []
    assert policy.running == [running]


def test_nobody_starves() -> None:
    """Under a load of `fast` requests that never ends, one of each lower tier gets its turn."""
    policy = scheduler(default=1)
    low = [fake(tier="flex"), fake(tier="default")]
    add(policy, *low)
    for second in range(60):
        add(policy, fake(tier="fast", arrived=second))
        admit(policy, now=second)
        while has_work(policy, Lane.SHARED):
            run(policy, policy.burst(SHARED, 8))
            admit(policy, now=second)
            if len(policy.waiting) <= 2:
                break
        for sequence in list(policy.running):
            policy.remove(sequence)
    assert all(sequence.timings.started for sequence in low)


# ---- blocks ---------------------------------------------------------------------------------------------------------


def test_all_blocks_or_none() -> None:
    policy = scheduler(num_blocks=10)
    big, bigger = fake(blocks=6), fake(blocks=5, arrived=1)
    add(policy, big, bigger)
    assert admit(policy) == [big]
    assert len(big.blocks) == 6
    assert bigger.blocks == []
    assert policy.pool.num_free == 4
    policy.remove(big)
    assert admit(policy) == [bigger]


def test_a_small_request_does_not_overtake_a_big_one_for_ever() -> None:
    policy = scheduler(num_blocks=10)
    running, big, small = fake(blocks=4), fake(blocks=8, arrived=1), fake(blocks=1, arrived=2)
    add(policy, running, big, small)
    assert admit(policy) == [running]  # small would fit, but big was first
    policy.remove(running)
    assert admit(policy) == [big, small]


def test_an_urgent_request_takes_the_blocks_of_others() -> None:
    policy = scheduler(num_blocks=10)
    add(policy, fake(blocks=4, tier="fast"), fake(blocks=4), fake(blocks=2, tier="flex"))
    fast, default, flex = admit(policy)
    urgent = fake(blocks=5, tier="ultrafast", arrived=1)
    add(policy, urgent)
    assert admit(policy, now=1) == [urgent]
    assert policy.running == [fast, urgent]
    assert set(policy.waiting) == {default, flex}


def test_nobody_gives_way_in_vain() -> None:
    policy = scheduler(num_blocks=10)
    add(policy, fake(blocks=6, tier="ultrafast"), fake(blocks=4, tier="default"))
    running = admit(policy)
    add(policy, fake(blocks=5, tier="fast", arrived=1))
    assert admit(policy, now=1) == []
    assert policy.running == running


def test_nobody_gives_up_a_slot_for_blocks_that_are_not_there() -> None:
    policy = scheduler(num_blocks=10, default=2)
    add(policy, fake(blocks=4, tier="fast"), fake(blocks=3, tier="flex"), fake(blocks=3, tier="ultrafast"))
    running = admit(policy)
    assert len(running) == 3
    add(policy, fake(blocks=5, arrived=1))
    assert admit(policy, now=1) == []
    assert set(policy.running) == set(running)


def test_what_was_computed_is_found_again() -> None:
    policy = scheduler(num_blocks=8, cache=8, default=1)
    victim = fake(prompt=3 * KV_BLOCK, output=9, tier="flex")
    add(policy, victim)
    admit(policy)
    run(policy, policy.burst(SHARED, 64))
    run(policy, policy.burst(SHARED, 64))
    add(policy, urgent := fake(arrived=1))
    assert admit(policy, now=1) == [urgent]
    policy.remove(urgent)
    assert admit(policy, now=2) == [victim]
    assert of(victim).num_computed == 2 * KV_BLOCK


def test_a_partial_block_is_copied() -> None:
    policy = scheduler(num_blocks=8, cache=8)
    first = fake(prompt=40, output=9)
    add(policy, first)
    admit(policy)
    run(policy, policy.burst(SHARED, 64))
    policy.remove(first)
    (block,) = policy.cache.blocks
    second = fake(prompt=1, output=9)
    of(second).prompt = [*of(first).prompt[:30], 1, 2]
    add(policy, second)
    (admitted,) = policy.admit(1.0)
    assert admitted.copy == (block, second.blocks[0])
    assert of(second).num_computed == 30
    policy.check_integrity()


# ---- a suspended burst ----------------------------------------------------------------------------------------------


def test_who_leaves_a_suspended_step_keeps_its_blocks_until_the_end() -> None:
    policy = scheduler(num_blocks=10)
    leaving, staying = fake(blocks=4), fake(blocks=4)
    add(policy, leaving, staying)
    admit(policy)
    burst = policy.suspended = policy.burst(SHARED, 32)
    policy.remove(leaving)
    assert policy.running == [staying]
    assert policy.pool.num_free == 2
    assert not policy.suspended_in_vain
    add(policy, waiting := fake(blocks=5))
    assert admit(policy) == []
    policy.check_integrity()
    policy.finished(burst)
    assert policy.pool.num_free == 6
    assert admit(policy) == [waiting]


def test_a_suspended_step_without_anybody_is_in_vain() -> None:
    policy = scheduler()
    add(policy, fake(), fake())
    both = admit(policy)
    policy.suspended = policy.burst(SHARED, 32)
    for sequence in both:
        policy.remove(sequence)
    assert policy.suspended_in_vain
    policy.abandoned()
    assert policy.pool.num_free == 100
    policy.check_integrity()


def test_who_is_in_a_suspended_step_does_not_give_way() -> None:
    policy = scheduler(num_blocks=4)
    add(policy, running := fake(blocks=4))
    admit(policy)
    burst = policy.suspended = policy.burst(SHARED, 32)
    add(policy, urgent := fake(blocks=4, tier="ultrafast"))
    assert admit(policy) == []
    policy.finished(burst)
    assert admit(policy) == [urgent]
    assert policy.waiting == [running]


# ---- what a burst computes ------------------------------------------------------------------------------------------


def chunks(*prompts: Sequence, budget: int, decoding: int = 0) -> dict[Sequence, int]:
    policy = scheduler(num_blocks=1000)
    add(policy, *prompts, *(others := [fake(prompt=1) for _ in range(decoding)]))
    admit(policy)
    burst = policy.burst(SHARED, budget)
    assert [entry for entry in burst.entries if entry[0] in others] == [(s, 1) for s in others]  # decoding goes on
    return {s: chunk for s, chunk in burst.entries if s not in others}


def test_a_prompt_alone_gets_the_whole_budget() -> None:
    assert list(chunks(fake(prompt=1000), budget=30).values()) == [30]
    assert list(chunks(fake(prompt=20), budget=30).values()) == [20]


def test_short_prompts_do_not_wait_for_long_ones_nor_long_ones_for_ever() -> None:
    long, short = fake(prompt=1000), [fake(prompt=10, arrived=1) for _ in range(5)]
    got = chunks(long, *short, budget=40)
    assert got == {long: 20, short[0]: 10, short[1]: 10}
    assert chunks(long, budget=40) == {long: 40}


def test_many_prompts_do_not_hold_up_each_other() -> None:
    prompts = [fake(prompt=100, arrived=i) for i in range(20)]
    assert chunks(*prompts, budget=32) == {prompts[0]: 32}


def test_prompts_of_higher_tiers_come_first() -> None:
    flex, default, fast = (fake(prompt=1000, tier=t, arrived=i) for i, t in enumerate(("flex", "default", "fast")))
    assert chunks(flex, default, fast, budget=28) == {flex: 14, fast: 14}


def test_many_streams_leave_room_for_prompts() -> None:
    prompt = fake(prompt=1000)
    assert chunks(prompt, budget=2, decoding=30) == {prompt: 15}


def test_fast_streams_get_steps_of_their_own() -> None:
    policy = scheduler()
    add(policy, fast := fake(output=50, tier="fast"), fake(output=50), fake(output=50, tier="flex"))
    everybody = admit(policy)
    for _ in range(3):
        burst = policy.burst(SHARED, 32)
        assert ([s for s, _ in burst.entries], burst.max_steps) == (everybody, 1)
        burst = policy.burst(SHARED, 32)
        assert ([s for s, _ in burst.entries], burst.max_steps) == ([fast], 2)


def test_a_slice_makes_one_step() -> None:
    policy = scheduler()
    add(policy, fake(), fake(prompt=30))
    admit(policy)
    assert policy.burst(replace(SHARED, slice=True), 8).max_steps == 1


@pytest.mark.parametrize("budget", [1, 2, 7, 64, 512])
def test_rows_never_exceed_the_limit(budget: int) -> None:
    policy = scheduler(max_rows=64, num_blocks=400)
    rng = random.Random(budget)
    add(policy, *(fake(prompt=rng.choice([1, 2, 500]), output=rng.randrange(1, 20)) for _ in range(32)))
    admit(policy)
    while has_work(policy, Lane.SHARED):
        burst = policy.burst(SHARED, budget)
        prefilling = [chunk for s, chunk in burst.entries if of(s).is_prefilling]
        assert all(chunk >= 1 for _, chunk in burst.entries)
        assert sum(prefilling) <= max(budget, 16)
        assert run(policy, burst) <= 64


# ---- everything at once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_random_loads_leave_nothing_behind(seed: int) -> None:
    """Arrivals of all tiers, cancels, suspended steps: everyone finishes or was cancelled, and no block is lost."""
    rng = random.Random(seed)
    policy = scheduler(num_blocks=24, cache=8, max_rows=64, default=4, fast=2, flex=2, ultrafast=2)
    everybody: list[Sequence] = []
    cancelled: set[Sequence] = set()
    for now in range(6000):
        if now < 1500 and rng.random() < 0.3:
            tier = rng.choice(["ultrafast", "fast", "default", "flex"])
            everybody.append(fake(rng.randrange(1, 400), rng.randrange(1, 30), tier, now / 10))
            policy.add(everybody[-1])
        if rng.random() < 0.05 and (alive := [*policy.running, *policy.waiting]):
            cancelled.add(leaving := rng.choice(alive))
            policy.remove(leaving)
            if policy.suspended_in_vain:
                for sequence, _ in policy.suspended.entries if policy.suspended else ():
                    of(sequence).num_computed = 0
                policy.abandoned()
        admit(policy, now / 10)
        if has_work(policy, Lane.URGENT) and rng.random() < 0.7:
            run(policy, policy.burst(URGENT, 16))
        elif policy.suspended:
            burst = policy.suspended
            policy.finished(burst)
            for sequence, _ in burst.entries:
                if sequence in policy.running and of(sequence).finished:
                    policy.remove(sequence)
        elif has_work(policy, Lane.SHARED):
            burst = policy.burst(SHARED, 16)
            if rng.random() < 0.3:
                for sequence, chunk in burst.entries:
                    of(sequence).step(chunk)
                policy.suspended = burst
            else:
                run(policy, burst)
        policy.check_integrity()
        if now > 1500 and not (policy.running or policy.waiting or policy.suspended):
            break
    assert not policy.running
    assert not policy.waiting
    assert all(of(sequence).finished or sequence in cancelled for sequence in everybody)
    assert policy.pool.num_free + policy.cache.num_blocks == 24
