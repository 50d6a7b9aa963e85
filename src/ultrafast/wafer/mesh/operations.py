"""What a token does on the mesh, operation by operation, and how long each takes.

Every matrix product, norm and softmax ends with a sum over rows or columns of PEs; what a PE does between two of them
is counted as one vector instruction for each arithmetic step on its numbers (an exponential is one, too).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ultrafast.models.shape import ModelShape
from ultrafast.wafer.cost import mesh
from ultrafast.wafer.cost.constants import constant
from ultrafast.wafer.cost.wafer import HOP_CYCLES
from ultrafast.wafer.mesh.events import Fabric
from ultrafast.wafer.mesh.layout import Heads, spread
from ultrafast.wafer.mesh.timing import Axis, Clock, Cycles, Timing

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Operation:
    """A step that all PEs of a region take together.

    Attributes:
        predicted: cycles by the closed forms of the cost model: the busiest PE, then its sum.
    """

    name: str
    timing: Timing
    predicted: float


class Operations:
    """The operations of a model on a mesh; those that do not depend on the context are simulated once.

    Args:
        head_regions: over how many regions the output projection is spread.
    """

    def __init__(self, shape: ModelShape, clock: Clock, head_regions: int) -> None:
        self._clock, self._head_regions, self._shape = clock, head_regions, shape
        heads = Heads.of(shape, clock.columns)
        group = shape.num_heads // shape.num_kv_heads
        self._hidden = _counts(spread(shape.hidden_size, clock.rows))
        self._keys = _counts(heads.keys)
        self._queries = group * self._keys
        self._heads = np.array([group * len(set(one[one >= 0].tolist())) for one in heads.head])
        self._feed_forward = _counts(spread(shape.intermediate_size, clock.columns))

    def layer(self, context: int) -> list[Operation]:
        """One token through a layer, and on to the next, when it sees ``context`` positions, itself included.

        All rows are taken to hold as many positions as the fullest.
        """
        positions = -(-context // self._clock.rows)
        hidden, queries, keys, heads = self._hidden, self._queries, self._keys, self._heads
        qkv, inner = queries + 2 * keys, self._feed_forward
        instructions = self._clock.instructions
        pairs = queries * positions  # multiply-adds
        # Weighted values: a product for each query number, or a vector for each position and head.
        fewest = np.minimum(queries, positions * heads)
        weighted = fewest * instructions(1, 0) + pairs / self._clock.macs_per_cycle
        all_heads = self._shape.num_heads * positions
        return [
            self._down("norm", instructions(1, hidden)[:, None], 2),
            self._down("Q, K, V", self._product(2, hidden, hidden, qkv), qkv),
            self._across(
                "scores", (instructions(2, queries + keys) + instructions(queries, positions))[None], all_heads
            ),
            self._down("softmax: largest", instructions(heads, positions)[None], 2 * heads),
            self._down("softmax: sum", instructions(3 * heads, positions)[None], 2 * heads),
            self._down("values", weighted[None], queries),
            self._across("output", self._product(1, queries, queries, hidden).T, hidden),
            self._down("norm 2", instructions(2, hidden)[:, None], 2),
            self._down("gate and up", self._product(2, hidden, hidden, 2 * inner), 2 * inner),
            self._across("down", self._product(3, inner, inner, hidden).T, hidden),
            self._move("to the next layer"),
        ]

    def head(self) -> list[Operation]:
        """The output projection and the most likely token, on all its regions at once."""
        each = -(-self._shape.vocab_size // self._head_regions)
        words = _counts(spread(each, self._clock.columns))
        return [
            self._down("norm", self._clock.instructions(1, self._hidden)[:, None], 2),
            self._down("logits", self._product(2, self._hidden, self._hidden, words), words),
            self._across("most likely", self._clock.instructions(2, words)[None], 4),  # a logit and its number
        ]

    def _product(self, before: int, length: Counts, inputs: Counts, outputs: Counts) -> Cycles:
        """[inputs, outputs]: some instructions on the inputs, then one for each of them."""
        instructions = self._clock.instructions
        return instructions(before, length)[:, None] + instructions(inputs[:, None], outputs[None])

    def _down(self, name: str, cycles: Cycles, halves: int | Counts) -> Operation:
        return self._reduced(name, "columns", cycles, halves)

    def _across(self, name: str, cycles: Cycles, halves: int | Counts) -> Operation:
        return self._reduced(name, "rows", cycles, halves)

    def _reduced(self, name: str, axis: Axis, cycles: Cycles, halves: int | Counts) -> Operation:
        rows, columns = self._clock.rows, self._clock.columns
        lines, side = (rows, columns) if axis == "rows" else (columns, rows)
        sizes = np.broadcast_to(halves, lines)
        words = tuple(max(1, -(-int(size) // 2)) for size in sizes)
        timing = self._clock.reduce(np.broadcast_to(cycles, (rows, columns)).copy(), axis, words)
        sums = mesh.reduction(side, int(sizes.max()))
        predicted = cycles.max() + (sums.hops + sums.words) * HOP_CYCLES + sums.stages * constant("wafer.stage_cycles")
        return Operation(name, timing, float(predicted))

    def _move(self, name: str) -> Operation:
        """The sum of what attention and feed-forward add, and its way to all PEs of the region beside this one."""
        rows, columns = self._clock.rows, self._clock.columns
        words = -(-int(self._hidden.max()) // 2)
        computed = np.broadcast_to(self._clock.instructions(1, self._hidden)[:, None], (rows, columns))
        fabric, done = Fabric(constant("wafer.stage_cycles")), np.zeros((rows, columns + 1))

        def arrive(pe: int, time: float) -> None:
            done[divmod(pe, columns + 1)] = time + words - 1

        for row in range(rows):  # the first PE of each is the last of this region
            path = range(row * (columns + 1), (row + 1) * (columns + 1))
            fabric.send(path, float(computed[row, 0]), words, arrive)
        end = fabric.run()
        return Operation(
            name, Timing(computed, end, done[:, 1:], fabric.num_events), float(computed.max()) + columns + words - 1
        )


def token_cycles(layer: Sequence[Operation], num_layers: int, head: Sequence[Operation]) -> tuple[float, float]:
    """Cycles of a token: simulated, and by the closed forms."""
    simulated = num_layers * sum(one.timing.cycles for one in layer) + sum(one.timing.cycles for one in head)
    predicted = num_layers * sum(one.predicted for one in layer) + sum(one.predicted for one in head)
    return simulated, predicted


def _counts(index: Counts) -> Counts:
    return np.asarray((index >= 0).sum(-1))
