"""Who runs next: pure policy, with sequences that are only numbers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import cast

import pytest

from ultrafast.engine.scheduler import Burst, Scheduler
from ultrafast.engine.sequence import Sequence


@dataclass(eq=False)
class FakeSequence:
    """What the scheduler sees of a sequence, and how a burst would move it on."""

    num_blocks_needed: int = 1
    prompt: int = 1
    output: int = 5
    computed: int = 0
    num_output: int = 0
    blocks: list[int] = field(default_factory=list)

    @property
    def is_prefilling(self) -> bool:
        return self.num_output == 0 and self.prompt - self.computed > 1

    @property
    def finished(self) -> bool:
        return self.num_output >= self.output

    def step(self, chunk: int) -> int:
        """One native step; returns the number of rows it took."""
        if self.num_output:
            self.num_output += 1
            return 1
        rows = min(chunk, self.prompt - self.computed)
        self.computed += rows
        self.num_output = int(self.computed == self.prompt)
        return rows


def fake(**sizes: int) -> Sequence:
    return cast(Sequence, FakeSequence(**sizes))


def of(sequence: Sequence) -> FakeSequence:
    return cast(FakeSequence, sequence)


def scheduler(num_slots: int = 4, num_blocks: int = 100, max_rows: int = 64) -> Scheduler:
    return Scheduler(num_slots=num_slots, num_blocks=num_blocks, max_rows=max_rows)


def run(policy: Scheduler, burst: Burst) -> int:
    """Make one step of a burst and take out who has finished; returns the rows computed."""
    rows = sum(of(sequence).step(chunk) for sequence, chunk in burst.entries)
    for sequence, _ in burst.entries:
        if of(sequence).finished:
            policy.remove(sequence)
    policy.check_integrity()
    return rows


def test_nothing_to_do() -> None:
    assert scheduler().schedule(32) == ([], None)


def test_first_come_first_served_into_the_slots() -> None:
    policy = scheduler(num_slots=2)
    first, second, third, fourth = (fake() for _ in range(4))
    for sequence in (first, second, third, fourth):
        policy.add(sequence)
    admitted, burst = policy.schedule(32)
    assert admitted == policy.running == [first, second]
    assert burst is not None
    assert [sequence for sequence, _ in burst.entries] == [first, second]
    assert policy.schedule(32)[0] == []
    policy.remove(first)
    assert policy.schedule(32)[0] == [third]
    assert policy.running == [second, third]
    assert list(policy.waiting) == [fourth]
    policy.check_integrity()


def test_all_blocks_or_none() -> None:
    policy = scheduler(num_blocks=10)
    big, bigger = fake(num_blocks_needed=6), fake(num_blocks_needed=5)
    policy.add(big)
    policy.add(bigger)
    assert policy.schedule(32)[0] == [big]
    assert len(big.blocks) == 6
    assert bigger.blocks == []
    assert policy.num_free_blocks == 4
    policy.remove(big)
    assert policy.schedule(32)[0] == [bigger]
    policy.check_integrity()


def test_a_small_request_does_not_overtake_a_big_one_for_ever() -> None:
    policy = scheduler(num_blocks=10)
    running, big, small = fake(num_blocks_needed=4), fake(num_blocks_needed=8), fake(num_blocks_needed=1)
    for sequence in (running, big, small):
        policy.add(sequence)
    assert policy.schedule(32)[0] == [running]  # small would fit, but big was first
    policy.remove(running)
    assert policy.schedule(32)[0] == [big, small]


def test_what_was_freed_last_is_used_first() -> None:
    policy = scheduler(num_blocks=100)
    first, second = fake(num_blocks_needed=3), fake(num_blocks_needed=2)
    policy.add(first)
    policy.add(second)
    policy.schedule(32)
    assert (first.blocks, second.blocks) == ([0, 1, 2], [3, 4])
    policy.remove(first)
    again = fake(num_blocks_needed=4)
    policy.add(again)
    policy.schedule(32)
    assert again.blocks == [0, 1, 2, 5]  # untouched memory only when there is no other


def test_prefill_shares_its_budget_and_decoding_goes_on() -> None:
    policy = scheduler(num_slots=8)
    decoding = [fake(prompt=1) for _ in range(3)]
    prompts = [fake(prompt=1000) for _ in range(2)]
    for sequence in decoding + prompts:
        policy.add(sequence)
    _, burst = policy.schedule(30)
    assert burst is not None
    assert burst.entries == [*((s, 1) for s in decoding), *((s, 15) for s in prompts)]
    assert burst.max_steps >= 1


@pytest.mark.parametrize("budget", [1, 2, 7, 64, 512])
def test_rows_never_exceed_the_limit(budget: int) -> None:
    policy = scheduler(num_slots=32, max_rows=64)
    rng = random.Random(budget)
    for _ in range(32):
        policy.add(fake(prompt=rng.choice([1, 2, 500]), output=rng.randrange(1, 20)))
    while (burst := policy.schedule(budget)[1]) is not None:
        prefilling = [chunk for s, chunk in burst.entries if of(s).is_prefilling]
        assert all(chunk >= 1 for _, chunk in burst.entries)  # nobody stands still
        assert sum(prefilling) <= max(budget, len(prefilling))
        assert run(policy, burst) <= 64


def test_a_budget_smaller_than_the_prompts_still_moves_all() -> None:
    policy = scheduler(num_slots=4)
    prompts = [fake(prompt=10) for _ in range(4)]
    for sequence in prompts:
        policy.add(sequence)
    _, burst = policy.schedule(2)
    assert burst is not None
    assert [chunk for _, chunk in burst.entries] == [1] * 4


def test_everyone_finishes_in_order_of_arrival_under_a_steady_stream() -> None:
    policy = scheduler(num_slots=3, num_blocks=12)
    rng = random.Random(1)
    arrived: list[Sequence] = []
    started: list[Sequence] = []
    for _ in range(2000):
        if len(arrived) < 300 and rng.random() < 0.5:
            sizes = {
                "num_blocks_needed": rng.randrange(1, 13),
                "prompt": rng.randrange(1, 60),
                "output": rng.randrange(1, 9),
            }
            arrived.append(fake(**sizes))
            policy.add(arrived[-1])
        admitted, burst = policy.schedule(16)
        started += admitted
        policy.check_integrity()
        if burst is not None:
            run(policy, burst)
    while (step := policy.schedule(16))[1] is not None:
        started += step[0]
        run(policy, step[1])
    assert started == arrived
    assert all(of(sequence).finished for sequence in arrived)
    assert policy.num_free_blocks == 12


def test_cancelling_anywhere_frees_everything() -> None:
    policy = scheduler(num_slots=3, num_blocks=12)
    rng = random.Random(2)
    live: list[Sequence] = []
    for _ in range(1000):
        if rng.random() < 0.6:
            live.append(fake(num_blocks_needed=rng.randrange(1, 6), output=rng.randrange(1, 30)))
            policy.add(live[-1])
        _, burst = policy.schedule(16)
        if burst is not None:
            run(policy, burst)
        live = [sequence for sequence in live if not of(sequence).finished]
        if live and rng.random() < 0.5:
            policy.remove(live.pop(rng.randrange(len(live))))
            policy.check_integrity()
        assert set(policy.running) | set(policy.waiting) == set(live)
    for sequence in live:
        policy.remove(sequence)
        policy.remove(sequence)  # again does no harm
        policy.check_integrity()
    assert policy.num_free_blocks == 12
    assert policy.schedule(16) == ([], None)


def test_the_integrity_check_sees_a_leak_and_a_double_use() -> None:
    policy = scheduler(num_blocks=10)
    held = policy.allocate(3)
    with pytest.raises(AssertionError):
        policy.check_integrity()
    policy.free(held)
    policy.check_integrity()
    policy.free([0])
    with pytest.raises(AssertionError):
        policy.check_integrity()


def test_idle_blocks_are_those_touched_beyond_the_ones_kept() -> None:
    policy = scheduler(num_blocks=10)
    held = policy.allocate(2)
    policy.free(policy.allocate(5))
    assert policy.forget_idle_blocks(keep=3) == [5, 6]  # 2, 3 and 4 come next
    assert policy.forget_idle_blocks(keep=3) == []  # told once
    policy.free(held)
    assert policy.forget_idle_blocks(keep=1) == [1, 2, 3, 4]
    assert policy.allocate(1) == [0]
