"""Which number of a vector lies on which PE of a line: index arrays, with -1 where there is none.

The residual stream lies along the rows of PEs, block by block, the same on all columns; what a product makes of it lies
along the columns, and the next product brings it back: no vector is ever transposed (WaferLLM).

Keys and values lie along the columns by pairs of dimensions that RoPE rotates together, and a query's numbers lie where
the key's are that they are multiplied with, so that grouped queries need no messages either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ultrafast.models.shape import ModelShape
from ultrafast.wafer.mesh.numbers import Floats, Halves

Index = npt.NDArray[np.int64]


def spread(size: int, parts: int) -> Index:
    """[parts, size of the largest block]: a vector in blocks whose sizes differ by one at most."""
    starts = size * np.arange(parts + 1) // parts
    index = starts[:-1, None] + np.arange(-(-size // parts))
    return np.where(index < starts[1:, None], index, -1)


def take(array: npt.NDArray[np.floating[Any]], index: Index, axis: int) -> Halves:
    """Rows or columns by their index, zeros for -1, rounded to 16 bits."""
    flat = index.ravel()
    taken = np.moveaxis(array.astype(np.float16).take(np.maximum(flat, 0), axis), axis, 0)
    taken[flat < 0] = 0
    return np.moveaxis(taken, 0, axis)


def tiles(matrix: Floats, outputs: Index, inputs: Index) -> Floats:
    """[PEs along the inputs, inputs of a PE, outputs of all PEs]: a matrix [outputs, inputs] in tiles.

    The numbers are those of 16 bits; what they are multiplied in has 32 (`Numbers`).
    """
    cut = take(take(matrix, inputs, 1), outputs, 0)
    return np.ascontiguousarray(cut.T.astype(np.float32)).reshape(*inputs.shape, outputs.size)


@dataclass(frozen=True)
class Heads:
    """Keys, values and queries along the columns.

    Attributes:
        keys: [columns, numbers of a PE]: rows of the K and V projections.
        queries: [columns, queries a key, numbers of a PE]: rows of the Q projection.
        head: [columns, numbers of a PE]: of which KV head.
        frequency: [columns, pairs of a PE]: radians a position; 0: not rotated.
    """

    keys: Index
    queries: Index
    head: Index
    frequency: npt.NDArray[np.float64]

    @classmethod
    def of(cls, shape: ModelShape, columns: int) -> Heads:
        """Those of a model."""
        pairs, frequencies = _pairs(shape)
        each = spread(shape.num_kv_heads * len(pairs), columns)
        there = each >= 0
        head, pair = np.divmod(np.maximum(each, 0), len(pairs))
        dims = pairs[pair].reshape(columns, -1)  # of a head
        there2 = there.repeat(2, axis=1)
        head2 = np.where(there2, head.repeat(2, axis=1), -1)
        group = shape.num_heads // shape.num_kv_heads
        query_heads = head2[:, None] * group + np.arange(group)[:, None]
        return cls(
            keys=np.where(there2, head2 * shape.head_dim + dims, -1),
            queries=np.where(there2[:, None], query_heads * shape.head_dim + dims[:, None], -1),
            head=head2,
            frequency=np.where(there, frequencies[pair], 0.0),
        )


def _pairs(shape: ModelShape) -> tuple[Index, npt.NDArray[np.float64]]:
    """Dimensions of a head, two that are rotated together each, and how fast."""
    rotated = shape.rope_dim // 2
    first, second = np.arange(0, shape.head_dim, 2), np.arange(1, shape.head_dim, 2)
    if shape.rope_halves:
        first[:rotated], second[:rotated] = np.arange(rotated), np.arange(rotated, shape.rope_dim)
    frequencies = np.zeros(len(first))
    frequencies[:rotated] = shape.rope_inv_freq
    return np.stack([first, second], axis=-1), frequencies
