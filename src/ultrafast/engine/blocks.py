"""Who holds which KV block: reference counts. Pure bookkeeping; the bytes are native."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class BlockPool:
    """KV blocks by number, each free or held by one or more; what nobody holds any more is free again.

    Not thread-safe: it belongs to whoever makes the engine's steps.

    Args:
        num_blocks: blocks of the model, numbered from 0.

    Attributes:
        version: another value whenever a reference has come or gone.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.version = 0
        # Last freed, first reused: memory that was touched before is touched again, and the rest never.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._refs = [0] * num_blocks
        self._touched: set[int] = set()  # blocks that may hold memory

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` free blocks, one reference each; the caller has seen that there are as many."""
        assert count <= len(self._free)
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._refs[block] = 1
        self._touched.update(blocks)
        self.version += 1
        return blocks

    def retain(self, blocks: Iterable[int]) -> None:
        """Add a reference to each of these blocks, all of them held by somebody already."""
        for block in blocks:
            assert self._refs[block] > 0
            self._refs[block] += 1
        self.version += 1

    def release(self, blocks: list[int]) -> None:
        """Take a reference from each of these blocks."""
        for block in reversed(blocks):  # so that they are given out again in this order
            assert self._refs[block] > 0
            self._refs[block] -= 1
            if self._refs[block] == 0:
                self._free.append(block)
        self.version += 1

    def ref_count(self, block: int) -> int:
        """References to the block; 0 if it is free."""
        return self._refs[block]

    def forget_idle_blocks(self, keep: int) -> list[int]:
        """Free blocks that hold memory, but for the ``keep`` that come next; they count as never used from here on."""
        idle = self._touched.intersection(self._free[: -keep or None])
        self._touched -= idle
        return sorted(idle)

    def check_integrity(self, held: Iterable[int]) -> None:
        """Every block is either free or in ``held``, and in there as often as it has references."""
        references = Counter(held)
        assert [references[block] for block in range(self.num_blocks)] == self._refs
        assert sorted([*references, *self._free]) == list(range(self.num_blocks))
