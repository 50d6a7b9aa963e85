"""Which KV blocks are found again: by hand, and against a model that is only a list of what is cached."""

from __future__ import annotations

import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ultrafast.engine.blocks import BlockPool
from ultrafast.engine.native import KV_BLOCK
from ultrafast.engine.prefix_cache import PrefixCache

OTHERS = 32  # siblings that a partial match looks at


def tokens(*runs: tuple[int, int]) -> list[int]:
    """``(token, how often)``, one after the other."""
    return [token for token, count in runs for _ in range(count)]


def cached(num_blocks: int = 40, max_blocks: int = 40) -> tuple[BlockPool, PrefixCache]:
    pool = BlockPool(num_blocks)
    return pool, PrefixCache(pool, max_blocks)


def store(pool: BlockPool, cache: PrefixCache, ids: Seq[int], domain: str = "") -> list[int]:
    """What a sequence without any match does that computes all of ``ids`` and ends."""
    blocks = pool.allocate(-(-len(ids) // KV_BLOCK))
    cache.insert(ids, blocks, len(ids), domain)
    cache.check_integrity()
    pool.release(blocks)
    return blocks


def look(pool: BlockPool, cache: PrefixCache, ids: Seq[int], domain: str = "", limit: int = 1 << 30) -> int:
    """Tokens found."""
    match = cache.match(ids, domain, limit)
    cache.check_integrity()
    pool.release(match.blocks + ([match.partial[0]] if match.partial else []))
    return match.num_tokens + (match.partial[1] if match.partial else 0)


def check(pool: BlockPool, cache: PrefixCache, held: Seq[int] = ()) -> None:
    cache.check_integrity()
    pool.check_integrity([*held, *cache.blocks])


def test_an_empty_cache_finds_nothing() -> None:
    pool, cache = cached()
    assert cache.match([1] * 200, "", 199).blocks == []
    assert look(pool, cache, []) == 0
    assert cache.num_evictable == cache.evict(5) == 0


def test_full_blocks_are_shared_and_the_last_is_to_be_copied() -> None:
    pool, cache = cached()
    ids = tokens((1, 64), (2, 64), (3, 10))
    blocks = store(pool, cache, ids)
    match = cache.match([*ids, 4, 4, 4], "", 1000)
    assert (match.blocks, match.num_tokens, match.partial) == (blocks[:2], 128, (blocks[2], 10))
    check(pool, cache, held=blocks)
    assert cache.num_evictable == 0
    pool.release([*match.blocks, blocks[2]])
    assert cache.num_evictable == 3


def test_prompts_part_within_a_block() -> None:
    pool, cache = cached()
    store(pool, cache, tokens((1, 64), (2, 64)))
    assert look(pool, cache, tokens((1, 64), (2, 30), (3, 50))) == 94
    assert look(pool, cache, tokens((1, 63), (2, 64))) == 63
    assert look(pool, cache, tokens((2, 64))) == 0


@pytest.mark.parametrize(("limit", "found"), [(0, 0), (1, 1), (63, 63), (64, 64), (127, 127), (128, 128), (500, 128)])
def test_no_more_than_the_limit_is_matched(limit: int, found: int) -> None:
    pool, cache = cached()
    ids = tokens((1, 64), (2, 64))
    blocks = store(pool, cache, ids)
    match = cache.match(ids, "", limit)
    assert match.blocks == blocks[: limit // 64]
    assert match.num_tokens + (match.partial or (0, 0))[1] == found


def test_the_block_that_the_limit_cuts_is_found_among_any_number_of_others() -> None:
    pool, cache = cached(100, 100)
    first = tokens((1, 64), (2, 64))
    store(pool, cache, first)
    for token in range(3, 3 + 2 * OTHERS):
        store(pool, cache, tokens((1, 64), (token, 64)))
    assert look(pool, cache, first, limit=127) == 127


def test_a_domain_sees_its_own_only() -> None:
    pool, cache = cached()
    ids = tokens((1, 130))
    store(pool, cache, ids, "mine")
    assert look(pool, cache, ids, "yours") == look(pool, cache, ids, "") == 0
    assert look(pool, cache, ids, "mine") == 130
    store(pool, cache, ids, "yours")
    assert cache.num_blocks == 6


def test_a_domain_leaves_nothing_behind() -> None:
    pool, cache = cached(6, 4)
    for salt in range(1000):
        store(pool, cache, [1] * 70, str(salt))
    assert len(cache._roots) == 2
    cache.clear()
    assert len(cache._roots) == cache.num_blocks == 0
    assert pool.num_free == 6


def test_what_is_cached_already_is_not_kept_twice() -> None:
    pool, cache = cached()
    ids = tokens((1, 64), (2, 20))
    blocks = store(pool, cache, ids)
    mine = pool.allocate(3)
    longer = tokens((1, 64), (2, 64), (3, 64))
    cache.insert(longer, mine, 192, "")
    assert cache.match(longer, "", 1000).blocks == [blocks[0], *mine[1:]]
    assert cache.num_blocks == 3


def test_a_longer_answer_takes_the_place_of_its_beginning() -> None:
    pool, cache = cached()
    for length in (10, 30, 20, 63):
        store(pool, cache, tokens((1, 64), (2, length)))
        assert cache.num_blocks == 2
    assert look(pool, cache, tokens((1, 64), (2, 80))) == 127
    store(pool, cache, tokens((1, 64), (2, 64)))
    assert cache.num_blocks == 2
    store(pool, cache, tokens((1, 64), (2, 50)))  # the full block has this already
    assert cache.num_blocks == 2


def test_a_chat_of_many_turns_piles_up_no_leaves() -> None:
    pool, cache = cached(200, 200)
    rng = random.Random(0)
    ids: list[int] = []
    for _ in range(100):
        ids = ids + [rng.randrange(50_000) for _ in range(rng.randrange(1, 90))]
        store(pool, cache, ids)
        assert cache.num_blocks == -(-len(ids) // KV_BLOCK)


def test_a_running_sequence_grows_its_last_block_in_the_cache() -> None:
    pool, cache = cached()
    blocks = pool.allocate(3)
    ids = list(range(150))
    for computed in (10, 40, 64, 90, 150):
        cache.insert(ids, blocks, computed, "")
        check(pool, cache, held=blocks)
        assert cache.num_blocks == -(-computed // KV_BLOCK)
    assert cache.match(ids, "", 150).partial == (blocks[2], 22)


def test_a_block_that_its_owner_grows_moves_even_if_long_unused() -> None:
    pool, cache = cached(100, 100)
    blocks = pool.allocate(1)
    cache.insert([1, 2, 3], blocks, 3, "")
    for token in range(100, 100 + 2 * OTHERS):
        store(pool, cache, [token] * 5)
    cache.insert([1, 2, 3, 4], blocks, 4, "")
    check(pool, cache, held=blocks)


def test_least_recently_used_goes_first_and_from_the_leaves() -> None:
    pool, cache = cached()
    system = tokens((1, 64))
    a, b, c = (system + tokens((token, 64)) for token in (2, 3, 4))
    for ids in (a, b, c):
        store(pool, cache, ids)
    look(pool, cache, a)
    assert cache.evict(1) == 1
    assert [look(pool, cache, ids) for ids in (b, c, a)] == [64, 128, 128]
    assert cache.evict(2) == 2  # both leaves before what they share
    assert [look(pool, cache, ids) for ids in (a, b, c)] == [64, 64, 64]
    assert cache.evict(100) == 1
    assert pool.num_free == 40


def test_what_runs_is_not_evicted_nor_what_it_stands_on() -> None:
    pool, cache = cached()
    ids = tokens((1, 64), (2, 64), (3, 64), (4, 64))
    blocks = store(pool, cache, ids)
    store(pool, cache, tokens((9, 64)))
    pool.retain(blocks[2:3])
    assert cache.num_evictable == 2
    assert cache.evict(100) == 2
    check(pool, cache, held=blocks[2:3])
    assert look(pool, cache, ids) == 192
    pool.release(blocks[2:3])
    assert cache.num_evictable == cache.evict(100) == 3


def test_of_many_branches_the_recently_used_are_compared() -> None:
    pool, cache = cached(200, 200)
    first = tokens((1, 64), (2, 30))
    store(pool, cache, first)
    for token in range(3, 3 + OTHERS):
        look(pool, cache, first)
        store(pool, cache, tokens((1, 64), (token, 30)))
    assert look(pool, cache, [*first, 99]) == 94
    assert look(pool, cache, tokens((1, 64), (3, 30), (99, 1))) == 64  # the price of a bound


def test_the_cache_stays_within_its_bound() -> None:
    pool, cache = cached(40, 3)
    store(pool, cache, tokens((1, 64), (2, 64)))
    store(pool, cache, tokens((3, 64), (4, 64)))
    assert cache.num_blocks == 3
    assert look(pool, cache, tokens((1, 64), (2, 64))) == 64
    assert look(pool, cache, tokens((3, 64), (4, 64))) == 128
    long = tokens(*((token, 64) for token in range(10, 20)))
    store(pool, cache, long)
    assert look(pool, cache, long) == 3 * 64


def test_what_has_no_room_is_not_stored() -> None:
    pool, cache = cached(40, 2)
    held = pool.allocate(2)
    cache.insert([1] * 128, held, 128, "")
    longer = pool.allocate(1)
    cache.insert([1] * 192, held + longer, 192, "")
    cache.insert([2] * 64, longer, 64, "")
    assert cache.num_blocks == 2
    check(pool, cache, held + longer)
    none = PrefixCache(pool, 0)
    none.insert([1] * 128, held, 128, "")
    assert none.num_blocks == 0


def test_making_room_spares_the_branch_that_grows() -> None:
    pool, cache = cached(40, 2)
    ids = tokens((1, 64), (2, 64), (3, 64))
    store(pool, cache, ids[:64])
    store(pool, cache, ids)
    assert look(pool, cache, ids) == 128


def test_the_integrity_check_sees_a_node_that_is_lost() -> None:
    pool, cache = cached()
    store(pool, cache, [1] * 100)
    next(iter(cache._roots.values())).children.clear()
    with pytest.raises((AssertionError, KeyError)):
        cache.check_integrity()


RUNS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 30, 63, 64, 65])), min_size=1, max_size=5)
PROMPTS = RUNS.map(lambda runs: tokens(*runs))
DOMAINS = st.sampled_from(["", "salt"])


def common(a: Seq[int], b: Seq[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(st.lists(st.tuples(DOMAINS, PROMPTS), max_size=8), DOMAINS, PROMPTS, st.integers(0, 300))
def test_with_room_for_all_the_longest_common_prefix_is_found(
    stored: list[tuple[str, list[int]]], domain: str, prompt: list[int], limit: int
) -> None:
    pool, cache = cached(200, 200)
    for owner, ids in stored:
        store(pool, cache, ids, owner)
    longest = max((common(ids, prompt) for owner, ids in stored if owner == domain), default=0)
    assert look(pool, cache, prompt, domain, limit) == min(limit, longest)


# Few, so that many sequences have much in common.
TEXTS = [tokens((1, 300)), tokens((1, 70), (2, 230)), tokens((1, 110), (3, 190))]
SOME_TEXT, SOME_LENGTH = st.sampled_from(range(len(TEXTS))), st.integers(1, 200)


@dataclass(eq=False)
class Runner:
    """A sequence as the scheduler would hold it: the first tokens of `ids` are computed, in `blocks`."""

    domain: str
    ids: list[int] = field(repr=False)
    blocks: list[int]
    num_computed: int


@dataclass
class Model:
    """What should be cached: a list of (domain, tokens up to and with the last block), least recently used first."""

    entries: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def use(self, domain: str, ids: Seq[int]) -> None:
        way = [entry for entry in self.entries if entry[0] == domain and common(entry[1], ids) == len(entry[1])]
        way.sort(key=lambda entry: -len(entry[1]))
        self.entries = [entry for entry in self.entries if entry not in way] + way

    def children(self, domain: str, prefix: Seq[int]) -> list[tuple[str, tuple[int, ...]]]:
        size = len(prefix)
        return [
            entry
            for entry in self.entries
            if entry[0] == domain and size < len(entry[1]) <= size + KV_BLOCK and entry[1][:size] == tuple(prefix)
        ]


class CacheMachine(RuleBasedStateMachine):
    """Sequences that start, compute, end and are cancelled, over blocks that remember what was written to them."""

    @initialize(num_blocks=st.integers(6, 20), max_blocks=st.sampled_from([12, 6, 3, 0]))
    def open(self, num_blocks: int, max_blocks: int) -> None:
        self.pool = BlockPool(num_blocks)
        self.cache = PrefixCache(self.pool, max_blocks)
        self.model = Model()
        self.running: list[Runner] = []
        # What was written where: the whole text up to there and its domain, as keys and values depend on all of it.
        self.kv: list[list[object]] = [[None] * KV_BLOCK for _ in range(num_blocks)]

    @rule(domain=DOMAINS, text=SOME_TEXT, length=SOME_LENGTH, new=st.integers(1, 70), count=st.integers(0, 270))
    def start(self, domain: str, text: int, length: int, new: int, count: int) -> None:
        """Match all but the last token, make room for the rest, copy the partial block."""
        prompt = TEXTS[text][:length]
        match = self.cache.match(prompt, domain, len(prompt) - 1)
        partial, copied = match.partial or (-1, 0)
        source = [partial] if copied else []
        assert match.num_tokens + copied == self.expected(domain, prompt, len(prompt) - 1)
        self.model.use(domain, prompt[: match.num_tokens])
        if copied:
            self.model.use(domain, self.prefix_of(partial))
        needed = -(-(length + new) // KV_BLOCK) - len(match.blocks)
        missing = needed - self.pool.num_free
        if missing > 0 and missing <= self.cache.num_evictable:
            self.evict_and_compare(missing, self.held + match.blocks + source)
        if needed > self.pool.num_free:
            self.pool.release(match.blocks + source)
            return
        own = self.pool.allocate(needed)
        if copied:
            self.kv[own[0]] = list(self.kv[partial])
            self.pool.release(source)
        self.running.append(Runner(domain, TEXTS[text][: length + new], match.blocks + own, match.num_tokens + copied))
        self.compute(self.running[-1], count)

    def compute(self, runner: Runner, count: int) -> None:
        end = min(len(runner.ids), runner.num_computed + count)
        for position in range(runner.num_computed, end):
            written = runner.domain, tuple(runner.ids[: position + 1])
            self.kv[runner.blocks[position // KV_BLOCK]][position % KV_BLOCK] = written
        runner.num_computed = end

    @precondition(lambda self: self.running)
    @rule(data=st.data(), count=st.integers(0, 100))
    def keep(self, data: st.DataObject, count: int) -> None:
        """A sequence that goes on lets others have what it has computed."""
        runner = data.draw(st.sampled_from(self.running))
        self.compute(runner, count)
        self.insert(runner)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cancelled=st.booleans())
    def end(self, data: st.DataObject, cancelled: bool) -> None:
        runner = data.draw(st.sampled_from(self.running))
        if not cancelled:
            self.insert(runner)
        self.running.remove(runner)
        self.pool.release(runner.blocks)

    @precondition(lambda self: self.cache.num_blocks)
    @rule(count=st.integers(1, 3))
    def evict(self, count: int) -> None:
        self.evict_and_compare(count, self.held)

    @rule(domain=DOMAINS, text=SOME_TEXT, length=SOME_LENGTH, limit=st.integers(0, 300))
    def look(self, domain: str, text: int, length: int, limit: int) -> None:
        prompt = TEXTS[text][:length]
        match = self.cache.match(prompt, domain, limit)
        partial, length = match.partial or (-1, 0)
        assert match.num_tokens + length == self.expected(domain, prompt, limit)
        self.model.use(domain, prompt[: match.num_tokens])
        if length:
            self.model.use(domain, self.prefix_of(partial))
        self.check_written(domain, prompt, match.blocks, match.num_tokens)
        self.check_written(domain, prompt, [*match.blocks, partial], match.num_tokens + length)
        self.pool.release(match.blocks + ([partial] if length else []))

    @precondition(lambda self: self.cache.num_blocks > 6)
    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.model.entries.clear()

    @invariant()
    def holds(self) -> None:
        self.cache.check_integrity()
        self.pool.check_integrity(self.held + self.cache.blocks)
        assert len(self.cache.blocks) == len(set(self.cache.blocks)) == self.cache.num_blocks <= self.cache.max_blocks
        assert [self.prefix_of(block) for block in self.cache.blocks] == [ids for _, ids in self.model.entries]
        assert self.cache.num_evictable == self.num_evictable()
        for runner in self.running:
            self.check_written(runner.domain, runner.ids, runner.blocks, runner.num_computed)

    @property
    def held(self) -> list[int]:
        return [block for runner in self.running for block in runner.blocks]

    def check_written(self, domain: str, ids: Seq[int], blocks: Seq[int], count: int) -> None:
        for position in range(count):
            written = self.kv[blocks[position // KV_BLOCK]][position % KV_BLOCK]
            assert written == (domain, tuple(ids[: position + 1]))

    def prefix_of(self, block: int) -> tuple[int, ...]:
        """The tokens that the cache takes a block for, from the start."""
        node, ids = self.cache._nodes[block], b""
        while node.parent is not None:
            node, ids = node.parent, node.key + ids
        return tuple(memoryview(ids).cast("i"))

    def expected(self, domain: str, prompt: Seq[int], limit: int) -> int:
        return min(limit, max((common(ids, prompt) for owner, ids in self.model.entries if owner == domain), default=0))

    def is_held(self, entry: tuple[str, tuple[int, ...]], held: Seq[int]) -> bool:
        """Whether a sequence holds the block of an entry, or of one that continues it."""
        return any(
            self.prefix_of(block)[: len(entry[1])] == entry[1] and self.domain_of(block) == entry[0]
            for block in self.cache.blocks
            if block in held
        )

    def domain_of(self, block: int) -> str:
        written = self.kv[block][0]
        assert isinstance(written, tuple)
        return str(written[0])

    def num_evictable(self) -> int:
        return sum(not self.is_held(entry, self.held) for entry in self.model.entries)

    def evict_and_compare(self, count: int, held: Seq[int]) -> None:
        expected = self.forget(count, held)
        assert self.cache.evict(count) == expected

    def forget(self, count: int, held: Seq[int], spared: tuple[str, tuple[int, ...]] | None = None) -> int:
        """Take out of the model what an eviction should; returns how many."""
        for done in range(count):
            for entry in self.model.entries:
                if entry != spared and not self.is_held(entry, held) and not self.model.children(*entry):
                    self.model.entries.remove(entry)
                    break
            else:
                return done
        return count

    def insert(self, runner: Runner) -> None:
        domain, ids = runner.domain, tuple(runner.ids[: runner.num_computed])
        last_start = max(0, len(ids) - 1) // KV_BLOCK * KV_BLOCK
        have_it = [e for e in self.model.children(domain, ids[:last_start]) if e[1][: len(ids)] == ids]
        if ids and not have_it:
            ends = [*range(KV_BLOCK, len(ids), KV_BLOCK), len(ids)]
            new = [(domain, ids[:end]) for end in ends if (domain, ids[:end]) not in self.model.entries]
            parent = domain, ids[: (len(new[0][1]) - 1) // KV_BLOCK * KV_BLOCK]
            outgrown = [e for e in self.model.children(*parent) if new[0][1][: len(e[1])] == e[1]]
            self.model.entries = [entry for entry in self.model.entries if entry not in outgrown]
            self.forget(len(new) - (self.cache.max_blocks - len(self.model.entries)), self.held, spared=parent)
            self.model.entries += new[: self.cache.max_blocks - len(self.model.entries)]
        self.cache.insert(runner.ids, runner.blocks, runner.num_computed, domain)
        self.model.use(domain, have_it[-1][1] if have_it else ids)


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
