"""Who runs next: admission to slots, and what each burst computes. Pure policy: no arrays, no clock, no bursts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ultrafast.engine.sequence import Sequence

_MAX_STEPS = 256  # of a burst; its time limit ends it long before, except with tiny models


@dataclass(frozen=True, slots=True)
class Burst:
    """Several native steps for a set of sequences: (sequence, most prompt tokens of it in one step)."""

    entries: list[tuple[Sequence, int]]
    max_steps: int


class Scheduler:
    """First come, first served into a fixed number of slots; all running sequences share every step.

    A sequence gets its slot together with all KV blocks that it can ever need, so that none fails midway. While others
    decode, prompts advance by small chunks: nobody's next token waits for another's long prompt.

    Args:
        num_slots: sequences that run at once.
        num_blocks: KV blocks of the model.
        max_rows: tokens computed in one step.
    """

    def __init__(self, *, num_slots: int, num_blocks: int, max_rows: int) -> None:
        self.num_slots = num_slots
        self.num_blocks = num_blocks
        self.max_rows = max_rows
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        # Last freed, first reused: memory that was touched before is touched again, and the rest never.
        self._free_blocks = list(range(num_blocks - 1, -1, -1))
        self._touched: set[int] = set()  # blocks that may hold memory

    @property
    def num_free_blocks(self) -> int:
        return len(self._free_blocks)

    def add(self, sequence: Sequence) -> None:
        """Put a sequence at the end of the queue."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a finished or cancelled sequence out, wherever it is, and free its blocks."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self.free(sequence.blocks)
        sequence.blocks = []

    def can_admit(self, sequence: Sequence) -> bool:
        """Whether a slot and all blocks of the sequence are free."""
        return len(self.running) < self.num_slots and sequence.num_blocks_needed <= len(self._free_blocks)

    def admit(self, sequence: Sequence) -> None:
        """Give the sequence a slot and its blocks."""
        assert self.can_admit(sequence)
        sequence.blocks = self.allocate(sequence.num_blocks_needed)
        self.running.append(sequence)

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` free blocks; the caller has seen that there are as many."""
        assert count <= len(self._free_blocks)
        blocks = [self._free_blocks.pop() for _ in range(count)]
        self._touched.update(blocks)
        return blocks

    def free(self, blocks: list[int]) -> None:
        """Give blocks back."""
        self._free_blocks.extend(reversed(blocks))

    def forget_idle_blocks(self, keep: int) -> list[int]:
        """Free blocks that hold memory, but for the ``keep`` that come next; they count as never used from here on."""
        idle = self._touched.intersection(self._free_blocks[: -keep or None])
        self._touched -= idle
        return sorted(idle)

    def schedule(self, prefill_budget: int) -> tuple[list[Sequence], Burst | None]:
        """Admit who fits, in order of arrival; then the next burst, or None with nothing to run.

        Args:
            prefill_budget: prompt tokens that one step should compute.

        Returns:
            The sequences admitted by this call, and the burst.
        """
        admitted = []
        while self.waiting and self.can_admit(self.waiting[0]):
            sequence = self.waiting.popleft()
            self.admit(sequence)
            admitted.append(sequence)
        if not self.running:
            return admitted, None
        prefilling = [sequence for sequence in self.running if sequence.is_prefilling]
        num_decoding = len(self.running) - len(prefilling)
        budget = min(prefill_budget, self.max_rows - num_decoding)
        share = max(1, budget // len(prefilling)) if prefilling else 1
        return admitted, Burst([(s, share if s.is_prefilling else 1) for s in self.running], _MAX_STEPS)

    def check_integrity(self) -> None:
        """Every block is either free or held by exactly one running sequence."""
        held = [block for sequence in self.running for block in sequence.blocks]
        assert sorted(held + self._free_blocks) == list(range(self.num_blocks))
        assert len(self.running) <= self.num_slots
        assert not any(sequence.blocks for sequence in self.waiting)
