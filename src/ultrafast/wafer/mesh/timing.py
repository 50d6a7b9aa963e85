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


@dataclass(frozen=True)
class Timing:
    """One operation, which begins at 0 on all PEs.

    Attributes:
        computed: when the arithmetic is done, on each PE.
        done: of each PE [rows, columns], when it has the result.
        events: how many were simulated.
    """

    computed: float
    done: npt.NDArray[np.float64]
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
    _known: dict[tuple[float, Axis, int, str], Timing] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise ConfigError(f"a mesh of {self.rows} x {self.columns} PEs has no PE; both must be at least 1")
        if self.rows * self.columns > MOST_PES:
            raise ConfigError(
                f"a mesh of {self.rows} x {self.columns} has {self.rows * self.columns:,} PEs; "
                f"{MOST_PES:,} are the most that are simulated"
            )

    def gemv(self, outputs: int, inputs: int, axis: Axis, *, algorithm: str = "tree") -> Timing:
        """A matrix times a vector: a vector instruction for each input of a PE, as long as it has outputs.

        Inputs are spread along the axis, outputs across it; sums leave as halves, two a word. All PEs run one program
        on tiles of one size, padded where a matrix has no more (as WaferLLM does).
        """
        along, across = (self.columns, self.rows) if axis == "rows" else (self.rows, self.columns)
        ins, outs = -(-inputs // along), -(-outputs // across)
        return self.reduce(self.instructions(ins, outs), axis, -(-outs // 2), algorithm)

    def allreduce(self, axis: Axis, words: int, algorithm: str = "tree") -> Timing:
        """Sums of so many words that are there already."""
        return self.reduce(0.0, axis, words, algorithm)

    def instructions(self, count: float, length: float) -> float:
        """Cycles of so many vector instructions of a length: each has its issue, whatever its length."""
        return count * (constant("wafer.step_cycles") + length / self.macs_per_cycle)

    def reduce(self, cycles: float, axis: Axis, words: int, algorithm: str = "tree") -> Timing:
        """Arithmetic of so many cycles on each PE, then a sum along the axis in messages of so many words."""
        key = (cycles, axis, words, algorithm)
        if key not in self._known:
            self._known[key] = self._simulate(*key)
        return self._known[key]

    def _simulate(self, cycles: float, axis: Axis, words: int, algorithm: str) -> Timing:
        fabric = Fabric(constant("wafer.stage_cycles"))
        pes = np.arange(self.rows * self.columns).reshape(self.rows, self.columns)
        sums = []
        for line in (pes if axis == "rows" else pes.T).tolist():
            one = summed(fabric, line, words, algorithm)
            sums.append(one)
            for place, pe in enumerate(line):
                fabric.compute(pe, 0.0, cycles, partial(one.ready, place))
        fabric.run()
        done = np.array([one.done for one in sums])
        return Timing(cycles, done if axis == "rows" else done.T, fabric.num_events)
