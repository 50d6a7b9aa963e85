"""Who runs next: admission to slots and KV blocks, preemption, and what each burst computes. Pure policy: no arrays.

Two lanes take turns (`lanes`): ``ultrafast`` alone in the urgent one; ``fast``, ``default`` and ``flex`` share every
step of the other. A sequence gets its slot together with all KV blocks that it can ever need, so that none fails
midway; when they are short, sequences of lower tiers go back to the queue, and their keys and values to the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from ultrafast.engine.blocks import BlockPool
from ultrafast.engine.lanes import Turn
from ultrafast.engine.native import KV_BLOCK, Lane
from ultrafast.engine.prefix_cache import PrefixCache
from ultrafast.engine.sequence import Sequence
from ultrafast.engine.tiers import DEFAULT, FAST, TIERS, Tiers

_MAX_STEPS = 256  # of a burst; its time limit ends it long before, except with tiny models
_AGING_S = 10.0  # a request of the shared lane counts as one tier higher after waiting this long, and so on
# For each step of the whole batch, `fast` streams get so many more of their own. With one among 15 others that makes
# it three times as fast as them, and them a fifth slower.
_FAST_STEPS = 2


@dataclass(slots=True)
class Burst:
    """Several native steps for a set of sequences.

    Attributes:
        entries: (sequence, most prompt tokens of it in one step).
        steps, rows, seconds: what became of it so far: steps finished, prompt tokens computed, time.
    """

    lane: Lane
    entries: list[tuple[Sequence, int]]
    max_steps: int
    steps: int = 0
    rows: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Admitted:
    """A sequence that has got its slot, and the KV block to copy (source, target) before anything is computed."""

    sequence: Sequence
    copy: tuple[int, int] | None


class Scheduler:
    """The queue, the running sequences, and their blocks.

    Args:
        tiers: slots of each tier.
        pool: KV blocks.
        cache: of prefixes, over the same pool.
        max_rows: tokens computed in one step.
    """

    def __init__(self, *, tiers: Tiers, pool: BlockPool, cache: PrefixCache, max_rows: int) -> None:
        self.tiers = tiers
        self.pool = pool
        self.cache = cache
        self.max_rows = max_rows
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.suspended: Burst | None = None  # of the shared lane
        self._leaving: list[Sequence] = []  # gone, but a suspended step still writes to their blocks
        self._news = False  # since the last look at the queue
        self._is_fast_next = False  # the last burst of the shared lane was of all its sequences

    # ---- coming and going -----------------------------------------------------------------------------------

    def add(self, sequence: Sequence) -> None:
        """Put a sequence into the queue."""
        self.waiting.append(sequence)
        self._news = True

    def remove(self, sequence: Sequence) -> None:
        """Take a finished or cancelled sequence out, wherever it is. Its blocks are free once no step needs them."""
        if sequence in self.running:
            self.running.remove(sequence)
            self._let_go(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self._news = True

    def share_prompt(self, sequence: Sequence) -> None:
        """Offer the full blocks of a prompt just computed to others."""
        prompt = sequence.request.prompt_ids
        full = len(prompt) // KV_BLOCK * KV_BLOCK
        if full:
            self.cache.insert(prompt, sequence.blocks, full, sequence.request.cache_salt)

    def finished(self, burst: Burst) -> None:
        """A burst has come back, and is not suspended."""
        if burst is self.suspended:
            self.abandoned()

    def abandoned(self) -> None:
        """The suspended burst is over."""
        self.suspended = None
        for sequence in self._leaving:
            self._release(sequence)
        self._leaving = []
        self._news = True  # what it held back can be had now

    @property
    def suspended_in_vain(self) -> bool:
        """Whether all sequences of the suspended burst have left."""
        return self.suspended is not None and len(self._leaving) == len(self.suspended.entries)

    # ---- admission ------------------------------------------------------------------------------------------

    def admit(self, now: float) -> list[Admitted]:
        """Give slots and blocks to those who are next: higher tiers first, then who came first.

        Nobody overtakes a sequence of its own or a higher tier that waits for blocks. Who has waited long counts as
        higher, so no tier starves.

        Args:
            now: seconds on the clock of `Timings`.
        """
        if not self._news or not self.waiting:
            return []
        self._news = False
        admitted = []
        full: set[str] = set()
        for sequence in sorted(self.waiting, key=lambda s: (self._rank(s, now), s.timings.arrived)):
            if sequence.tier in full:
                continue
            slots = self._slots_missing(sequence)
            if slots is None or slots > len(self._victims(sequence, now)):
                full.add(sequence.tier)
                continue
            found = self._take_blocks(sequence, slots, now)
            if found is None:
                break
            self.waiting.remove(sequence)
            self.running.append(sequence)
            admitted.append(found)
        return admitted

    def _rank(self, sequence: Sequence, now: float) -> int:
        """0 is first."""
        rank = TIERS.index(sequence.tier)
        return rank if rank == 0 else max(1, rank - int((now - sequence.timings.arrived) / _AGING_S))

    def _slots_missing(self, sequence: Sequence) -> int | None:
        """How many others must give their slot up for this one: none or one; None when its own tier is full."""
        policies = self.tiers.policies
        if sum(other.tier == sequence.tier for other in self.running) >= policies[sequence.tier].slots:
            return None
        if sequence.lane is Lane.URGENT:
            return 0
        return int(sum(other.lane is Lane.SHARED for other in self.running) >= policies[DEFAULT].slots)

    def _victims(self, sequence: Sequence, now: float) -> list[Sequence]:
        """Sequences that must give way to this one, the least entitled first."""
        in_step = {id(other) for other, _ in self.suspended.entries} if self.suspended else set()
        rank = TIERS.index(sequence.tier)
        lower = [s for s in self.running if self._rank(s, now) > rank and id(s) not in in_step]
        return sorted(lower, key=lambda s: (self._rank(s, now), s.timings.started), reverse=True)

    def _preempt(self, victim: Sequence) -> None:
        self.running.remove(victim)
        self._release(victim)
        victim.num_preempted += 1
        self.waiting.append(victim)
        self._news = True

    def _take_blocks(self, sequence: Sequence, slots: int, now: float) -> Admitted | None:
        """All blocks that the sequence can need, shared ones first; None if there are too few.

        Args:
            slots: to be freed as well.
        """
        tokens = sequence.token_ids
        match = self.cache.match(tokens, sequence.request.cache_salt, sequence.max_cached)
        own = sequence.num_blocks_needed - len(match.blocks)
        if not self._make_room(sequence, own, slots, now):
            self.pool.release(match.blocks)
            if match.partial:
                self.pool.release([match.partial[0]])
            return None
        sequence.blocks = [*match.blocks, *self.pool.allocate(own)]
        cached, copy = match.num_tokens, None
        if match.partial:
            source, count = match.partial
            copy = (source, sequence.blocks[len(match.blocks)])
            cached += count
            self.pool.release([source])  # nothing is computed before it is copied
        sequence.begin(cached)
        return Admitted(sequence, copy)

    def _make_room(self, sequence: Sequence, count: int, slots: int, now: float) -> bool:
        """Have ``count`` free blocks, from the cache, then from sequences of lower tiers, and so many free slots.

        All or nothing: nobody gives way in vain.
        """

        def is_short() -> bool:
            return self.pool.num_free + self.cache.num_evictable < count

        if slots or is_short():
            victims = self._victims(sequence, now)
            if self.pool.num_free + self.cache.num_evictable + sum(len(v.blocks) for v in victims) < count:
                return False
            for number, victim in enumerate(victims):
                if number >= slots and not is_short():
                    break
                self._preempt(victim)
        if self.pool.num_free < count:
            self.cache.evict(count - self.pool.num_free)
        return self.pool.num_free >= count

    def _let_go(self, sequence: Sequence) -> None:
        if self.suspended is not None and any(other is sequence for other, _ in self.suspended.entries):
            self._leaving.append(sequence)
        else:
            self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        count = sequence.num_computed
        self.cache.insert(sequence.token_ids[:count], sequence.blocks, count, sequence.request.cache_salt)
        self.pool.release(sequence.blocks)
        sequence.blocks = []

    # ---- what is computed -----------------------------------------------------------------------------------

    def burst(self, turn: Turn, prefill_budget: int) -> Burst:
        """The next burst of a lane that has work and is not suspended.

        Args:
            turn: whose it is.
            prefill_budget: prompt tokens that one step should compute.
        """
        lane = [sequence for sequence in self.running if sequence.lane is turn.lane]
        fast = [sequence for sequence in lane if sequence.tier == FAST and not sequence.is_prefilling]
        if not fast or len(fast) == len(lane):
            max_steps = 1 if turn.slice else _MAX_STEPS
        elif self._is_fast_next:
            lane, max_steps, self._is_fast_next = fast, 1 if turn.slice else _FAST_STEPS, False
        else:
            max_steps, self._is_fast_next = 1, True
        return Burst(turn.lane, self._entries(lane, prefill_budget), max_steps)

    def _entries(self, sequences: list[Sequence], prefill_budget: int) -> list[tuple[Sequence, int]]:
        prompts = [sequence for sequence in sequences if sequence.is_prefilling]
        decoding = [(sequence, 1) for sequence in sequences if not sequence.is_prefilling]
        if not prompts:
            return decoding
        # Many streams make a step long by themselves; new prompts still get a third of its rows.
        budget = min(max(2, prefill_budget, len(decoding) // 2), self.max_rows - len(decoding))
        return decoding + _chunks(prompts, budget)

    # ---- for tests ------------------------------------------------------------------------------------------

    def check_integrity(self) -> None:
        """Every reference to a block is that of the cache or of one sequence that holds it."""
        holders = [*self.running, *self._leaving]
        assert all(len(sequence.blocks) == sequence.num_blocks_needed for sequence in holders)
        self.pool.check_integrity([*self.cache.blocks, *(block for s in holders for block in s.blocks)])
        assert not any(sequence.blocks for sequence in self.waiting)
        for tier, policy in self.tiers.policies.items():
            assert sum(sequence.tier == tier for sequence in self.running) <= policy.slots
        self.cache.check_integrity()


def _chunks(prompts: list[Sequence], budget: int) -> list[tuple[Sequence, int]]:
    """Divide the prompt tokens of a step.

    Half of them go to the prompt that came first, so that it moves on whatever else comes; the rest to higher tiers and
    to those with least to do: a short prompt does not wait for long ones, and many do not hold up each other.
    """
    oldest = min(prompts, key=lambda s: s.timings.arrived)
    chunks = {oldest: min(oldest.num_pending, max(1, budget // 2))}
    left = budget - chunks[oldest]
    for sequence in sorted(prompts, key=lambda s: (TIERS.index(s.tier), s.num_pending)):
        chunk = min(left, sequence.num_pending - chunks.get(sequence, 0))
        if chunk > 0:
            chunks[sequence] = chunks.get(sequence, 0) + chunk
            left -= chunk
    return list(chunks.items())
