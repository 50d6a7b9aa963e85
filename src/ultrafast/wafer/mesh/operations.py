"""What a token does on the mesh, operation by operation, and how long each takes.

Every matrix product, norm and softmax ends with a sum over rows or columns of PEs; what a PE does between two of them
is counted as one vector instruction for each arithmetic step on its numbers (an exponential is one, too).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ultrafast.models.shape import ModelShape
from ultrafast.wafer.cost import mesh
from ultrafast.wafer.cost.constants import constant
from ultrafast.wafer.cost.wafer import HOP_CYCLES
from ultrafast.wafer.mesh.events import Fabric
from ultrafast.wafer.mesh.layout import Heads
from ultrafast.wafer.mesh.timing import Axis, Clock, Timing


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
        self._hidden = -(-shape.hidden_size // clock.rows)
        self._keys = heads.keys.shape[1]
        self._queries = group * self._keys
        self._heads = group * max(len(set(one[one >= 0].tolist())) for one in heads.head)
        self._feed_forward = -(-shape.intermediate_size // clock.columns)

    def layer(self, context: int) -> list[Operation]:
        """One token through a layer, and on to the next, when it sees ``context`` positions, itself included."""
        positions = -(-context // self._clock.rows)
        hidden, queries, keys, heads = self._hidden, self._queries, self._keys, self._heads
        qkv, inner, all_heads = queries + 2 * keys, self._feed_forward, self._shape.num_heads
        issue = self._clock.instructions
        scores = issue(2, queries + keys) + issue(queries, positions)
        # Weighted values: a product for each number of a query, or a vector for each position and head.
        fewest = min(queries, positions * heads)
        values = issue(fewest, queries * positions / fewest)
        return [
            self._summed("norm", "columns", issue(1, hidden), 2),
            self._summed("Q, K, V", "columns", issue(2, hidden) + issue(hidden, qkv), qkv),
            self._summed("scores", "rows", scores, all_heads * positions),
            self._summed("softmax: largest", "columns", issue(heads, positions), 2 * heads),
            self._summed("softmax: sum", "columns", issue(3 * heads, positions), 2 * heads),
            self._summed("values", "columns", values, queries),
            self._summed("output", "rows", issue(1, queries) + issue(queries, hidden), hidden),
            self._summed("norm 2", "columns", issue(2, hidden), 2),
            self._summed("gate and up", "columns", issue(2, hidden) + issue(hidden, 2 * inner), 2 * inner),
            self._summed("down", "rows", issue(3, inner) + issue(inner, hidden), hidden),
            self._move("to the next layer"),
        ]

    def head(self) -> list[Operation]:
        """The output projection and the most likely token, on all its regions at once."""
        words = -(-self._shape.vocab_size // (self._head_regions * self._clock.columns))
        hidden, issue = self._hidden, self._clock.instructions
        return [
            self._summed("norm", "columns", issue(1, hidden), 2),
            self._summed("logits", "columns", issue(2, hidden) + issue(hidden, words), words),
            self._summed("most likely", "rows", issue(2, words), 4),  # a logit and its number
        ]

    def _summed(self, name: str, axis: Axis, cycles: float, halves: int) -> Operation:
        """Arithmetic, and sums of so many numbers of 16 bits a PE; one of 32 is two."""
        timing = self._clock.reduce(cycles, axis, -(-halves // 2))
        sums = mesh.reduction(self._clock.columns if axis == "rows" else self._clock.rows, halves)
        way = (sums.hops + sums.words) * HOP_CYCLES + sums.stages * constant("wafer.stage_cycles")
        return Operation(name, timing, cycles + way)

    def _move(self, name: str) -> Operation:
        """The sum of what attention and feed-forward add, and its way to all PEs of the region beside this one."""
        rows, columns = self._clock.rows, self._clock.columns
        words, computed = -(-self._hidden // 2), self._clock.instructions(1, self._hidden)
        fabric, done = Fabric(constant("wafer.stage_cycles")), np.zeros((rows, columns + 1))

        def arrive(pe: int, time: float) -> None:
            done[divmod(pe, columns + 1)] = time + words - 1

        for row in range(rows):  # the first PE of each is the last of this region
            path = range(row * (columns + 1), (row + 1) * (columns + 1))
            fabric.send(path, computed, words, arrive)
        fabric.run()
        return Operation(
            name, Timing(computed, done[:, 1:], fabric.num_events), computed + columns * HOP_CYCLES + words - 1
        )


def token_cycles(layer: Sequence[Operation], num_layers: int, head: Sequence[Operation]) -> tuple[float, float]:
    """Cycles of a token: simulated, and by the closed forms."""
    simulated = num_layers * sum(one.timing.cycles for one in layer) + sum(one.timing.cycles for one in head)
    predicted = num_layers * sum(one.predicted for one in layer) + sum(one.predicted for one in head)
    return simulated, predicted
