"""KV blocks that outlive their request: the next prompt that starts with the same tokens need not compute them again.

A tree for each domain. An edge is the tokens of one block; so the way from the root to a node spells a prefix, and the
node's block holds the keys and values of its last tokens. A full block is shared as it is, by any number of sequences,
and none writes to it. A sequence's last block is mostly not full: it is a leaf, and whoever needs its tokens copies it.

::

    A: [system prompt, 64][question, 64][answer, 20]        system prompt ─┬─ question ── answer (20, partial)
    B: [system prompt, 64][another question, 31]                           └─ another question (31, partial)
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import islice
from weakref import WeakValueDictionary

from ultrafast.engine.blocks import BlockPool
from ultrafast.engine.native import KV_BLOCK

_TOKEN_BYTES = array("i").itemsize
_BLOCK_BYTES = KV_BLOCK * _TOKEN_BYTES
_MOST_SIBLINGS = 32  # that are compared token by token: bounds the work where thousands of prompts part


@dataclass(frozen=True, slots=True)
class Match:
    """What the cache has of a prompt. Its blocks are retained for the caller, who releases them.

    Attributes:
        blocks: full and shared, in order: to read, never to write.
        partial: a block whose first so many tokens come next, and that number: to be copied into a block of one's own.
    """

    blocks: list[int]
    partial: tuple[int, int] | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens in `blocks`."""
        return KV_BLOCK * len(self.blocks)


@dataclass(eq=False, slots=True, weakref_slot=True)
class _Node:
    """One cached block; a root has none.

    Attributes:
        key: the block's tokens, as bytes.
        children: by key, least recently used first.
    """

    parent: _Node | None = None
    key: bytes = b""
    block: int = -1
    children: dict[bytes, _Node] = field(default_factory=dict)


class PrefixCache:
    """Cached KV blocks, found by the tokens they hold. What was not used for longest goes first.

    The cache holds one reference to each of its blocks. Not thread-safe, as the pool.

    Args:
        pool: where the blocks come from and go to.
        max_blocks: blocks that the cache holds at most.
    """

    def __init__(self, pool: BlockPool, max_blocks: int) -> None:
        self.max_blocks = max_blocks
        self._pool = pool
        self._roots: WeakValueDictionary[str, _Node] = WeakValueDictionary()  # a root lives as long as its children
        # By block, least recently used first. A prefix is used whenever its continuation is, and counts as used after
        # it: children come before their parents.
        self._nodes: OrderedDict[int, _Node] = OrderedDict()
        self._evictable = (-1, 0)  # version of the pool, `num_evictable` then

    @property
    def num_blocks(self) -> int:
        """Blocks that the cache holds."""
        return len(self._nodes)

    @property
    def blocks(self) -> list[int]:
        """The blocks that the cache holds."""
        return list(self._nodes)

    @property
    def num_evictable(self) -> int:
        """Blocks that `evict` could free: those that nobody else holds, and nobody else any continuation of."""
        version, count = self._evictable
        if version != self._pool.version:
            pinned: set[_Node | None] = set()
            for node in self._nodes.values():
                if node in pinned or self._pool.ref_count(node.block) > 1:
                    pinned |= {node, node.parent}
            count = sum(node not in pinned for node in self._nodes.values())
            self._evictable = self._pool.version, count
        return count

    def match(self, token_ids: Seq[int], domain: str, limit: int) -> Match:
        """The longest cached prefix of ``token_ids``.

        Args:
            token_ids: of the whole prompt.
            domain: only what was inserted under the same domain is seen.
            limit: tokens that may be matched; it can end within a block that is cached in full.
        """
        keys = _keys(token_ids)
        limit = max(0, min(limit, len(token_ids)))
        node = self._roots.get(domain) or _Node()
        blocks: list[int] = []
        for key in keys[: limit // KV_BLOCK]:
            child = node.children.get(key)
            if child is None:
                break
            node = child
            blocks.append(node.block)
        partial = None
        for key in keys[len(blocks) : len(blocks) + 1]:
            leaf, num_tokens = _longest_start(node, key, limit - KV_BLOCK * len(blocks))
            if num_tokens > 0:
                node, partial = leaf, (leaf.block, num_tokens)
        self._use(node)
        self._pool.retain(blocks if partial is None else [*blocks, node.block])
        return Match(blocks, partial)

    def insert(self, token_ids: Seq[int], blocks: Seq[int], num_computed: int, domain: str) -> None:
        """Keep the blocks of a sequence; where its tokens are cached already, those blocks stay and its own do not.

        Its owner may go on to write into the last, partial block, behind ``num_computed``, and insert it again.
        Evicts to make room; stores less, from the front, where that is not enough.

        Args:
            token_ids: at least ``num_computed``.
            blocks: that hold their keys and values, in order; held by the caller.
            num_computed: tokens whose keys and values are there.
            domain: who may see them.
        """
        keys = _keys(token_ids[:num_computed])
        node = self._roots.setdefault(domain, _Node())
        for depth, key in enumerate(keys):
            child = node.children.get(key)
            if child is None:
                node = self._add(node, keys[depth:], blocks[depth : len(keys)])
                break
            node = child
        self._use(node)

    def evict(self, count: int) -> int:
        """Free up to ``count`` blocks, least recently used first; returns how many it were."""
        freed = 0
        for node in list(self._nodes.values()):
            if freed == count:
                break
            if not node.children and self._pool.ref_count(node.block) == 1:
                self._remove(node)
                freed += 1
        return freed

    def clear(self) -> None:
        """Forget everything; what running sequences hold stays theirs."""
        for node in list(self._nodes.values()):
            self._remove(node)

    def check_integrity(self) -> None:
        """The tree and the order of use name the same blocks, each once, and the tree is one."""
        seen = set()
        for node in self._nodes.values():
            parent = node.parent
            assert parent is not None
            assert parent.children[node.key] is node
            assert len(node.key) == _BLOCK_BYTES or not node.children
            assert 0 < len(node.key) <= _BLOCK_BYTES
            assert all(child.block in seen for child in node.children.values())
            assert self._nodes[node.block] is node
            assert parent.block in self._nodes or any(parent is root for root in self._roots.values())
            assert self._pool.ref_count(node.block) > 0
            seen.add(node.block)
        assert len(seen) <= self.max_blocks

    def _add(self, parent: _Node, keys: list[bytes], blocks: Seq[int]) -> _Node:
        """Put a chain of blocks under ``parent``, which has no child of the first key; returns its last node."""
        for sibling in _recent_children(parent):
            if sibling.key.startswith(keys[0]):
                return sibling  # has these tokens and more
            if keys[0].startswith(sibling.key):
                self._remove(sibling)  # an earlier state of the same text: of no more use
        if blocks[0] in self._nodes:
            self._remove(self._nodes[blocks[0]])  # the same, of the same sequence, not used for long
        self._make_room(len(keys), parent)
        node = parent
        for key, block in zip(keys[: self.max_blocks - self.num_blocks], blocks, strict=False):
            node = _Node(node, key, block)
            parent.children[key] = self._nodes[block] = parent = node
            self._pool.retain([block])
        return node

    def _make_room(self, count: int, parent: _Node) -> None:
        """Evict until ``count`` blocks have room, if possible, but not ``parent``."""
        missing = count - (self.max_blocks - self.num_blocks)
        if missing > 0:
            held = [parent.block] if parent.parent else []
            self._pool.retain(held)
            self.evict(missing)
            self._pool.release(held)

    def _remove(self, leaf: _Node) -> None:
        assert leaf.parent is not None
        assert not leaf.children
        del leaf.parent.children[leaf.key]
        del self._nodes[leaf.block]
        self._pool.release([leaf.block])

    def _use(self, node: _Node) -> None:
        """Make a node and all on its way to the root the most recently used, itself first."""
        while node.parent is not None:
            self._nodes.move_to_end(node.block)
            siblings = node.parent.children
            siblings[node.key] = siblings.pop(node.key)
            node = node.parent


def _keys(token_ids: Seq[int]) -> list[bytes]:
    """The tokens as bytes, a block each; the last may be shorter."""
    data = array("i", token_ids).tobytes()
    return [data[start : start + _BLOCK_BYTES] for start in range(0, len(data), _BLOCK_BYTES)]


def _recent_children(node: _Node) -> list[_Node]:
    return list(islice(reversed(node.children.values()), _MOST_SIBLINGS))


def _longest_start(node: _Node, key: bytes, at_most: int) -> tuple[_Node, int]:
    """The child whose tokens start like ``key`` for longest, and for how many tokens; 0 if there is none."""
    best, best_length = node, 0
    exact = node.children.get(key)
    for child in _recent_children(node) if exact is None else [exact]:
        length = min(_common_tokens(key, child.key), at_most)
        if length > best_length:
            best, best_length = child, length
    return best, best_length


def _common_tokens(a: bytes, b: bytes) -> int:
    """Tokens at the start of both: the lowest bit set in the exclusive or of the two as numbers tells."""
    size = min(len(a), len(b))
    difference = int.from_bytes(a[:size], "little") ^ int.from_bytes(b[:size], "little")
    equal_bytes = ((difference & -difference).bit_length() - 1) // 8 if difference else size
    return equal_bytes // _TOKEN_BYTES
