"""What a layer costs on a square region of processing elements (PEs), in cycles, before any constant is fitted.

The forms are those of PLMR and of the MeshGEMV and MeshGEMM algorithms (He et al., WaferLLM, OSDI 2025,
https://www.usenix.org/system/files/osdi25-he.pdf), with counts taken from the matrices of the layer, so that grouped
queries, latent attention and experts need no forms of their own. Ceilings are meant: a PE has whole rows and columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ultrafast.wafer.shape import Matrix, Shape

_NORMS = 2  # sums of squares, one before attention and one before the feed-forward network
_SOFTMAX = 2  # its largest score, and its sum
_PER_WORD = 2  # numbers of 16 bits in a word of a link
_FUSED = {
    **dict.fromkeys(("q", "k", "v", "q_down", "kv_down"), "in"),
    **dict.fromkeys((f"{prefix}{name}" for prefix in ("", "expert_", "shared_") for name in ("gate", "up")), "gates"),
    **dict.fromkeys(("expert_down", "shared_down"), "down"),
}
"""Matrices of one input, whose products are reduced at once."""


@dataclass(frozen=True, slots=True)
class DecodeWork:
    """One token through one layer, or a part of it.

    Attributes:
        macs: multiply-adds of the busiest PE.
        steps: vector instructions that it issues; each has a cost of its own, however short its vector.
        hops: links that partial sums and results pass one after the other.
        stages: times that a PE's software handles a message on that way.
        words: words of 32 bits that follow the first of a message and are waited for: a cycle each.
    """

    macs: float = 0.0
    steps: float = 0.0
    hops: float = 0.0
    stages: float = 0.0
    words: float = 0.0

    def __add__(self, other: DecodeWork) -> DecodeWork:
        return DecodeWork(
            self.macs + other.macs,
            self.steps + other.steps,
            self.hops + other.hops,
            self.stages + other.stages,
            self.words + other.words,
        )

    def __mul__(self, count: float) -> DecodeWork:
        return DecodeWork(
            count * self.macs, count * self.steps, count * self.hops, count * self.stages, count * self.words
        )


def reduction(side: int, elements: float = 1.0) -> DecodeWork:
    """An all-reduce of so many 16-bit numbers a PE along a line of ``side`` PEs, by a tree of two levels.

    Groups of PEs sum up towards their middles from both ends, then the middles do, and the result goes back to both
    ends. Messages stream, so that the words after the first count once, and once more wherever two messages meet at a
    PE and one waits until the other has passed.
    """
    count = groups(side)
    size = -(-side // count)
    rest = max(1.0, math.ceil(elements / _PER_WORD)) - 1
    apart = max(0.0, rest - size)  # what is left of a message when the next comes, a group further on
    waits = rest * (size > 2) + apart * (size > 1 and count > 1)
    waits += rest if count > 1 and count % 2 else apart * (count > 2)
    hops, stages = _way(side, count)
    return DecodeWork(hops=float(hops), stages=float(stages), words=rest + waits)


@cache
def groups(side: int) -> int:
    """Groups of the two-level tree along a line of PEs: those with the fewest stages, and of these the fewest hops."""

    return min(range(1, side + 1), key=lambda count: _way(side, count)[::-1])


def _way(side: int, count: int) -> tuple[int, int]:
    """Hops and stages, one after the other, of a tree of ``count`` groups.

    Two messages come to the middle of an odd number of PEs at once, so that one is a stage behind the other.
    """
    size, middle = -(-side // count), count // 2
    root = (side * middle // count + side * (middle + 1) // count) // 2
    hops = size // 2 + size * middle + max(root, side - 1 - root)
    return hops, sum((one + 1) // 2 for one in (size, count) if one > 1)


def gemv(matrix: Matrix, along: int, across: int, *, times: int = 1) -> DecodeWork:
    """A matrix times a vector, without the reduction of its partial sums: a vector instruction for each column.

    Args:
        along, across: PEs over which its columns and its rows are spread.
    """
    rows, columns = _share(matrix.rows, across), _share(matrix.columns, along)
    return DecodeWork(macs=float(times * rows * columns), steps=float(times * columns))


def product(matrix: Matrix, along: int, across: int) -> DecodeWork:
    """A matrix times a vector, the result on all PEs that need it."""
    return gemv(matrix, along, across) + reduction(along, _share(matrix.rows, across))


def attention(shape: Shape, layer: int, side: int, context: int) -> DecodeWork:
    """Scores and weighted values of one token over its context, spread evenly over the rows of the region."""
    positions = _share(_seen(shape, layer, context), side)
    keys, values = _head_widths(shape)
    return DecodeWork(
        macs=float((_share(keys, side) + _share(values, side)) * positions),
        steps=float(_share(keys, side) + positions),
    )


def decode(shape: Shape, layer: int, side: int, context: int, *, batch: int = 1) -> DecodeWork:
    """One token of each of ``batch`` sequences through one layer that has a region of ``side`` x ``side`` PEs.

    Arithmetic and instructions are those of all sequences; messages carry what is of all of them, in the same hops.
    Experts are cut into tiles over the whole region, as the other matrices are: no PE idles for want of a token, and
    the active experts follow each other.
    """
    work = DecodeWork()
    for elements in _reduced(shape, layer, side, context, _products(shape, layer)):
        work += reduction(side, batch * elements)
    for matrix in shape.matrices(layer):
        work += gemv(matrix, side, side, times=batch * matrix.active)
    attended = attention(shape, layer, side, context)
    return work + DecodeWork(macs=batch * attended.macs, steps=batch * attended.steps)


def head(shape: Shape, side: int, *, batch: int = 1) -> DecodeWork:
    """The output projection on a region of its own, and the search for the largest logit."""
    return gemv(shape.head, side, side, times=batch) + reduction(side, batch) * 2


@dataclass(frozen=True, slots=True)
class PrefillWork:
    """A prompt through one layer.

    Attributes:
        macs: multiply-adds of the busiest PE.
        shifts: steps of compute and shift, over all matrix products, each of which moves a tile to a neighbour.
    """

    macs: float
    shifts: float


def prefill(shape: Shape, layer: int, side: int, tokens: int, *, before: int = 0) -> PrefillWork:
    """``tokens`` of a prompt through one layer: each product is ``side`` steps of compute and shift (MeshGEMM).

    Args:
        before: positions of the prompt that were computed already, to which these attend as well.
    """
    rows = _share(tokens, side)
    keys, values = _head_widths(shape)
    seen = before + tokens
    if shape.windows and shape.windows[layer]:
        seen = min(seen, shape.windows[layer] + tokens)
    macs, shifts = float(side * rows * _share(seen, side) * (_share(keys, side) + _share(values, side))), 2.0 * side
    for matrix in shape.matrices(layer):
        work = _product(matrix, side, tokens)
        macs, shifts = macs + work.macs, shifts + work.shifts
    return PrefillWork(macs, shifts)


def _product(matrix: Matrix, side: int, tokens: int) -> PrefillWork:
    """A matrix with the tokens of a prompt. Routed experts have squares of their own and work at once, each with its
    share of the tokens; their weights are moved there over the fabric, as between the two layouts of WaferLLM."""
    if matrix.count > matrix.active:
        side = max(1, int(side / math.sqrt(matrix.count)))
        tokens = math.ceil(tokens * matrix.active / matrix.count)
    rows = _share(tokens, side) * (matrix.active if matrix.count == matrix.active else 1)
    return PrefillWork(float(side * rows * _share(matrix.rows, side) * _share(matrix.columns, side)), float(side))


def _products(shape: Shape, layer: int) -> list[int]:
    """Rows of the products of a layer, each of which is reduced at once; those that share their input are one."""
    rows: dict[str, int] = {}
    for matrix in shape.matrices(layer):
        name = _FUSED.get(matrix.name, matrix.name)
        if name == "down":  # what several experts give is summed up before it is sent
            rows[name] = matrix.rows
        else:
            rows[name] = rows.get(name, 0) + matrix.active * matrix.rows
    return list(rows.values())


def _reduced(shape: Shape, layer: int, side: int, context: int, products: Sequence[int]) -> list[int]:
    """Of each all-reduce of a token, how many numbers a PE has.

    Beside products and weighted values, norms have one, softmax (the largest score, and the sum) one a head, and scores
    one a head and position.
    """
    _, values = _head_widths(shape)
    heads, positions = shape.num_heads, _share(_seen(shape, layer, context), side)
    sizes = [_share(rows, side) for rows in (*products, values)]
    return [*sizes, heads * positions, *[1] * _NORMS, *[heads] * _SOFTMAX]


def _head_widths(shape: Shape) -> tuple[int, int]:
    """Numbers of all heads that a query is compared with, and that are summed up, a position."""
    if shape.latent is None:
        width = shape.num_heads * shape.head_dim
        return width, width
    # Absorbed into queries and outputs, keys and values of all heads are the compressed vector itself.
    rank = shape.latent.kv_rank
    return shape.num_heads * (rank + shape.latent.rope_dim), shape.num_heads * rank


def _seen(shape: Shape, layer: int, context: int) -> int:
    """Positions that a layer attends to."""
    window = shape.windows[layer] if shape.windows else 0
    return min(context, window) if window else context


def _share(size: int, side: int) -> int:
    return -(-size // side)


def decode_with_regions(shape: Shape, layer: int, side: int, context: int, *, batch: int = 1) -> DecodeWork:
    """As `decode`, but each expert has a square of its own, by its share of the layer's parameters.

    The active experts work at once, each on few PEs; the token goes to their squares and their sums come back, both
    over the whole region. A layer without experts is as in `decode`.
    """
    matrices = shape.matrices(layer)
    experts = [matrix for matrix in matrices if matrix.name.startswith("expert_")]
    if not experts:
        return decode(shape, layer, side, context, batch=batch)
    share = sum(matrix.parameters for matrix in experts) / sum(matrix.parameters for matrix in matrices)
    inner = max(1, int(side * math.sqrt(share / experts[0].count)))
    outer = max(1, int(side * math.sqrt(1 - share)))
    *others, _, down = _products(shape, layer)
    gates = sum(matrix.rows for matrix in experts if not matrix.name.endswith("down"))
    work = reduction(inner, _share(gates, inner)) + reduction(inner, _share(down, inner))
    work += reduction(side, batch * _share(down, side)) * 2  # the token goes there, and its sums come back
    for elements in _reduced(shape, layer, outer, context, others):
        work += reduction(outer, batch * elements)
    for matrix in matrices:
        if matrix in experts:
            work += gemv(matrix, inner, inner, times=_tokens_of_busiest(matrix, batch))
        else:
            work += gemv(matrix, outer, outer, times=batch * matrix.active)
    attended = attention(shape, layer, outer, context)
    return work + DecodeWork(macs=batch * attended.macs, steps=batch * attended.steps)


def _tokens_of_busiest(matrix: Matrix, batch: int) -> int:
    """Tokens of a batch that the busiest expert gets at least: the mean, rounded up."""
    return max(1, math.ceil(batch * matrix.active / matrix.count))
