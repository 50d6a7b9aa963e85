"""What a layer costs on a square region of processing elements (PEs), in cycles, before any constant is fitted.

The forms are those of PLMR and of the MeshGEMV and MeshGEMM algorithms (He et al., WaferLLM, OSDI 2025,
https://www.usenix.org/system/files/osdi25-he.pdf), with counts taken from the matrices of the layer, so that grouped
queries, latent attention and experts need no forms of their own. Ceilings are meant: a PE has whole rows and columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ultrafast.wafer.shape import Matrix, Shape

_NORMS = 2  # sums of squares, one before attention and one before the feed-forward network
_SOFTMAX = 2  # its largest score, and its sum


@dataclass(frozen=True, slots=True)
class DecodeWork:
    """One token through one layer, or a part of it.

    Attributes:
        macs: multiply-adds of the busiest PE.
        steps: vector instructions that it issues; each has a cost of its own, however short its vector.
        hops: links that partial sums and results pass one after the other.
        stages: times that a PE's software handles a message on that way.
    """

    macs: float = 0.0
    steps: float = 0.0
    hops: float = 0.0
    stages: float = 0.0

    def __add__(self, other: DecodeWork) -> DecodeWork:
        return DecodeWork(
            self.macs + other.macs, self.steps + other.steps, self.hops + other.hops, self.stages + other.stages
        )


def reduction(side: int, count: int = 1) -> DecodeWork:
    """All-reduces along a line of ``side`` PEs by a tree of two levels: half a line up in each of two halves, and back.

    A group of g PEs sums up in g / 2 stages from both ends, then G groups do: with g = G = sqrt(side), that is
    sqrt(side) stages; every link of the line is passed once up and down: ``side`` hops.
    """
    return DecodeWork(hops=count * float(side), stages=count * math.sqrt(side))


def gemv(matrix: Matrix, side: int, *, times: int = 1) -> DecodeWork:
    """A matrix times a vector, without the reduction of its partial sums: a vector instruction for each column."""
    rows, columns = _share(matrix.rows, side), _share(matrix.columns, side)
    return DecodeWork(macs=float(times * rows * columns), steps=float(times * columns))


def attention(shape: Shape, layer: int, side: int, context: int) -> DecodeWork:
    """Scores and weighted values of one token over its context, spread evenly over the rows of the region."""
    seen = context if not shape.windows or not shape.windows[layer] else min(context, shape.windows[layer])
    positions = _share(seen, side)
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
    work = reduction(side, _num_reductions(shape, layer))
    for matrix in shape.matrices(layer):
        work += gemv(matrix, side, times=batch * matrix.active)
    attended = attention(shape, layer, side, context)
    return work + DecodeWork(macs=batch * attended.macs, steps=batch * attended.steps)


def head(shape: Shape, side: int, *, batch: int = 1) -> DecodeWork:
    """The output projection on a region of its own, and the search for the largest logit."""
    return gemv(shape.head, side, times=batch) + reduction(side, 2)


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


def _num_reductions(shape: Shape, layer: int) -> int:
    """All-reduces of a token: after each product whose input is spread, with those that share an input fused."""
    names = {matrix.name for matrix in shape.matrices(layer)}
    fused = len({"q", "k", "v", "q_down", "kv_down"} & names) - 1  # they share their input
    gates = sum(name.endswith("gate") for name in names)  # gate and up share their input
    experts = {"expert_gate", "shared_gate"} <= names  # routed and shared experts too, and their sums are one
    products = len(names) - fused - gates - 2 * experts
    return products + 2 + _NORMS + _SOFTMAX


def _head_widths(shape: Shape) -> tuple[int, int]:
    """Numbers of all heads that a query is compared with, and that are summed up, a position."""
    if shape.latent is None:
        width = shape.num_heads * shape.head_dim
        return width, width
    # Absorbed into queries and outputs, keys and values of all heads are the compressed vector itself.
    rank = shape.latent.kv_rank
    return shape.num_heads * (rank + shape.latent.rope_dim), shape.num_heads * rank


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
    work = reduction(outer, _num_reductions(shape, layer) - 2) + reduction(inner, 2) + reduction(side, 2)
    for matrix in matrices:
        if matrix in experts:
            work += gemv(matrix, inner, times=_tokens_of_busiest(matrix, batch))
        else:
            work += gemv(matrix, outer, times=batch * matrix.active)
    attended = attention(shape, layer, outer, context)
    return work + DecodeWork(macs=batch * attended.macs, steps=batch * attended.steps)


def _tokens_of_busiest(matrix: Matrix, batch: int) -> int:
    """Tokens of a batch that the busiest expert gets at least: the mean, rounded up."""
    return max(1, math.ceil(batch * matrix.active / matrix.count))
