"""The arithmetic of processing elements (PEs), done for all of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ultrafast.wafer.mesh.collectives import order_of_adds

Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]
Format = Literal["fp16", "fp32"]

_DTYPES: dict[Format, type[np.floating[Any]]] = {"fp16": np.float16, "fp32": np.float32}


@dataclass(frozen=True)
class Numbers:
    """Formats of sums. What is stored, and what is multiplied, has 16 bits (IEEE half precision) either way.

    Attributes:
        accumulate: within a PE. A product of two halves is exact in fp32; in fp16, each multiply-add is rounded.
        links: of the partial sums that PEs send each other, and of the sums of those. Single numbers, those of norms
            and of softmax, travel in fp32: a link carries words of 32 bits.
    """

    accumulate: Format = "fp32"
    links: Format = "fp16"

    def product(self, x: npt.NDArray[Any], weights: Floats) -> npt.NDArray[Any]:
        """Partial sums of every PE, as they leave it.

        Args:
            x: [PEs along the line, tokens, inputs of a PE].
            weights: [PEs along the line, inputs of a PE, outputs of all lines]; their values are those of halves.

        Returns:
            [PEs along the line, tokens, outputs of all lines]
        """
        if self.accumulate == "fp32":
            return np.asarray(np.matmul(x.astype(np.float32), weights).astype(_DTYPES[self.links]))
        sums = np.zeros((*x.shape[:2], weights.shape[2]), np.float16)
        for column in range(x.shape[2]):  # a vector instruction each
            sums = (sums + x[:, :, column, None].astype(np.float32) * weights[:, None, column]).astype(np.float16)
        return sums.astype(_DTYPES[self.links])

    def multiply(self, x: npt.NDArray[Any], weights: Floats) -> Halves:
        """`product`, and the sums over the line: [tokens, outputs of all lines]."""
        return total(self.product(x, weights)).astype(np.float16)


def total(partial: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The sum over the first axis, a line of PEs, by the two-level tree: in its order, each rounded to the format."""
    sums, root = partial.copy(), 0
    for root, sender in order_of_adds(len(partial)):  # the last that adds is the root
        sums[root] += sums[sender]
    return np.asarray(sums[root])
