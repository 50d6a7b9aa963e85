"""Cycles of the operations of a layer on a mesh, by event simulation of all its PEs, links and routers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from ultrafast.errors import ConfigError
from ultrafast.wafer.cost.constants import constant
from ultrafast.wafer.mesh.collectives import summed
from ultrafast.wafer.mesh.events import Fabric

Axis = Literal["rows", "columns"]
"""Along what partial sums go: ``rows``: each row of PEs has a sum of its own; ``columns``: each column."""

MOST_PES = 128 * 128
"""Of a mesh, that it may be simulated: events are some ten a PE and operation."""

Cycles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Timing:
    """One operation, which begins at 0 on all PEs.

    Attributes:
        computed: of each PE [rows, columns], when its own arithmetic is done.
        reduced: when the last root has the first word of its sum.
        done: of each PE, when it has the result.
        events: how many were simulated.
    """

    computed: Cycles
    reduced: float
    done: Cycles
    events: int

    @property
    def cycles(self) -> float:
        """Until all PEs have their results."""
        return float(self.done.max())


@dataclass
class Clock:
    """The time of operations on a mesh of ``rows`` x ``columns`` PEs; each is simulated once for each of its sizes.

    Args:
        macs_per_cycle: of a PE.

    Raises:
        ConfigError: there is no such mesh, or it is too large to be simulated.
    """

    rows: int
    columns: int
    macs_per_cycle: float = 4.0
    _known: dict[object, Timing] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise ConfigError(f"a mesh of {self.rows} x {self.columns} PEs has no PE; both must be at least 1")
        if self.rows * self.columns > MOST_PES:
            raise ConfigError(
                f"a mesh of {self.rows} x {self.columns} has {self.rows * self.columns:,} PEs; "
                f"{MOST_PES:,} are the most that are simulated"
            )

    def gemv(self, outputs: int, inputs: int, axis: Axis, *, extra: float = 0.0, algorithm: str = "tree") -> Timing:
        """A matrix times a vector: a vector instruction for each input of a PE, as long as it has outputs.

        Inputs are cut into blocks along the axis, outputs across it; sums leave as halves, two a word.

        Args:
            extra: vector instructions before that, as long as a PE has inputs.
        """
        along, across = (self.columns, self.rows) if axis == "rows" else (self.rows, self.columns)
        ins, outs = blocks(inputs, along), blocks(outputs, across)
        cycles = self.instructions(ins[None, :], outs[:, None]) + self.instructions(extra, ins[None, :])
        words = tuple(max(1, -(-int(out) // 2)) for out in outs)
        return self.reduce(cycles if axis == "rows" else cycles.T, axis, words, algorithm)

    def allreduce(self, axis: Axis, words: int, algorithm: str = "tree") -> Timing:
        """Sums of so many words that are there already."""
        return self.reduce(
            np.zeros((self.rows, self.columns)),
            axis,
            (words,) * (self.rows if axis == "rows" else self.columns),
            algorithm,
        )

    def instructions(self, count: npt.ArrayLike, length: npt.ArrayLike) -> Cycles:
        """Cycles of so many vector instructions of a length: each has its issue, whatever its length."""
        cycles = constant("wafer.step_cycles") + np.asarray(length, float) / self.macs_per_cycle
        return np.asarray(np.asarray(count, float) * cycles)

    def reduce(self, cycles: Cycles, axis: Axis, words: tuple[int, ...], algorithm: str = "tree") -> Timing:
        """Arithmetic on each PE, then sums along the axis.

        Args:
            cycles: of the arithmetic [rows, columns].
            words: of a message, of each line.
        """
        key = (cycles.tobytes(), axis, words, algorithm)
        if key not in self._known:
            self._known[key] = self._simulate(cycles, axis, words, algorithm)
        return self._known[key]

    def _simulate(self, cycles: Cycles, axis: Axis, words: tuple[int, ...], algorithm: str) -> Timing:
        fabric = Fabric(constant("wafer.stage_cycles"))
        pes = np.arange(self.rows * self.columns).reshape(self.rows, self.columns)
        lines = pes if axis == "rows" else pes.T
        times = cycles if axis == "rows" else cycles.T
        sums = []
        for line, size, work in zip(lines.tolist(), words, times.tolist(), strict=True):
            one = summed(fabric, line, size, algorithm)
            sums.append(one)
            for place, (pe, needed) in enumerate(zip(line, work, strict=True)):
                fabric.compute(pe, 0.0, needed, partial(one.ready, place))
        fabric.run()
        done = np.array([one.done for one in sums])
        return Timing(cycles, max(one.reduced for one in sums), done if axis == "rows" else done.T, fabric.num_events)


def blocks(size: int, parts: int) -> npt.NDArray[np.int64]:
    """Sizes of the blocks of a vector over a line of PEs: all as large as the first, as long as there is enough."""
    each = -(-size // parts)
    return np.clip(size - each * np.arange(parts), 0, each)
