"""Reference counts of KV blocks."""

from __future__ import annotations

import pytest

from ultrafast.engine.blocks import BlockPool


def test_a_block_is_free_when_its_last_holder_lets_go() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(3)
    assert (blocks, pool.num_free) == ([0, 1, 2], 1)
    pool.retain(blocks[:2])
    pool.release(blocks)
    assert [pool.ref_count(block) for block in range(4)] == [1, 1, 0, 0]
    assert pool.num_free == 2
    pool.release([1])
    pool.release([0])
    assert pool.num_free == 4
    pool.check_integrity([])


def test_what_was_freed_last_is_used_first_and_in_the_same_order() -> None:
    pool = BlockPool(100)
    first, second = pool.allocate(3), pool.allocate(2)
    pool.release(first)
    assert pool.allocate(4) == [0, 1, 2, 5]  # untouched memory only when there is no other
    assert second == [3, 4]


def test_the_version_tells_of_every_change() -> None:
    pool = BlockPool(4)
    seen = {pool.version}
    blocks = pool.allocate(1)
    seen.add(pool.version)
    pool.retain(blocks)
    seen.add(pool.version)
    pool.release(blocks)
    seen.add(pool.version)
    assert len(seen) == 4


@pytest.mark.parametrize(
    "misuse",
    [lambda pool: pool.allocate(5), lambda pool: pool.retain([0]), lambda pool: pool.release([0])],
    ids=["allocate too many", "retain a free block", "release a free block"],
)
def test_misuse_is_noticed_at_once(misuse: object) -> None:
    with pytest.raises(AssertionError):
        misuse(BlockPool(4))  # type: ignore[operator]


def test_the_integrity_check_sees_a_leak_and_a_double_use() -> None:
    pool = BlockPool(10)
    held = pool.allocate(3)
    pool.check_integrity(held)
    pool.retain(held[:1])
    pool.check_integrity([*held, held[0]])
    for wrong in (held, held[1:], [*held, held[0], 7], [*held, held[0], 99]):
        with pytest.raises(AssertionError):
            pool.check_integrity(wrong)


def test_idle_blocks_are_those_touched_beyond_the_ones_kept() -> None:
    pool = BlockPool(10)
    held = pool.allocate(2)
    pool.release(pool.allocate(5))
    assert pool.forget_idle_blocks(keep=3) == [5, 6]  # 2, 3 and 4 come next
    assert pool.forget_idle_blocks(keep=3) == []  # told once
    pool.release(held)
    assert pool.forget_idle_blocks(keep=1) == [1, 2, 3, 4]
    assert pool.allocate(1) == [0]
