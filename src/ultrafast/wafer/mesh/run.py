"""A model on a mesh, its tokens and the time that each takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ultrafast.errors import ConfigError
from ultrafast.models.gguf import GgufFile
from ultrafast.models.tokenizer import Tokenizer
from ultrafast.wafer import catalog
from ultrafast.wafer.cost import wafer
from ultrafast.wafer.device import Device
from ultrafast.wafer.mesh.decoder import Decoder
from ultrafast.wafer.mesh.numbers import Floats, Numbers
from ultrafast.wafer.mesh.operations import Operation, Operations, token_cycles
from ultrafast.wafer.mesh.timing import Clock
from ultrafast.wafer.placement import RESERVE_BYTES


@dataclass(frozen=True)
class Step:
    """One token.

    Attributes:
        token: the most likely one.
        logits: [vocabulary].
        context: positions that it was computed from.
        cycles: by event simulation, from layer to layer and through the output projection.
        predicted: the same by the closed forms, operation by operation.
    """

    token: int
    logits: Floats
    context: int
    cycles: float
    predicted: float


class Simulation:
    """One sequence at a time, each layer on a region of ``rows`` x ``columns`` PEs.

    Args:
        path: a GGUF file.

    Raises:
        ConfigError: no such mesh, or a device that is none.
        ModelFileError: the file is malformed, or has parts that are not executed on a mesh.
    """

    def __init__(self, path: Path, rows: int, columns: int, device: Device, *, numbers: Numbers | None = None) -> None:
        if device.kind != "wafer":
            raise ConfigError(f"{device.title} is no mesh of PEs; wse-2 and wse-3 are")
        if rows > device["grid_height"] or columns > device["grid_width"]:
            raise ConfigError(
                f"a mesh of {rows} x {columns} is larger than {device.title}: "
                f"{device['grid_height']:,.0f} x {device['grid_width']:,.0f} PEs"
            )
        self.clock = Clock(rows, columns, device["macs_per_cycle"])
        self.device = device
        with GgufFile(path) as file:
            self.tokenizer = Tokenizer.from_gguf(file.metadata, str(path))
            self.decoder = Decoder(file, rows, columns, numbers=numbers or Numbers())
        self._sizes = catalog.model(str(path))
        self.room_bytes = device["sram_bytes_per_core"] - RESERVE_BYTES
        self.head_regions = math.ceil(self._sizes.head.parameters * 2 / (self.room_bytes * rows * columns))
        self.operations = Operations(self.decoder.shape, self.clock, self.head_regions)

    def steps(self, prompt: Sequence[int], count: int, forced: Sequence[int] = ()) -> Iterator[Step]:
        """The next tokens after a prompt, each the most likely one.

        Args:
            forced: tokens that are taken instead of the most likely ones, as far as they go.

        Raises:
            ConfigError: nothing to continue, nothing to do, or more than the model was made for.
        """
        if not prompt or count < 1:
            raise ConfigError(f"a prompt of {len(prompt)} tokens and {count} more; both must be at least 1")
        self.decoder.restart(len(prompt) + count)
        logits = self.decoder.forward(prompt)[-1]
        for number in range(count):
            context = self.decoder.position
            token = int(logits.argmax())
            yield Step(token, logits, context, *token_cycles(*self.parts(context)))
            if number + 1 < count:
                logits = self.decoder.forward([forced[number] if number < len(forced) else token])[-1]

    def parts(self, context: int) -> tuple[list[Operation], int, list[Operation]]:
        """Operations of a layer, how many layers there are, and the operations of the head."""
        return self.operations.layer(context), self.decoder.shape.num_layers, self.operations.head()

    def planned_cycles(self, context: int) -> float:
        """Of a token, by the cost model that plans are made with: a square of as many PEs."""
        rows, columns = self.clock.rows, self.clock.columns
        regions = wafer.Regions(
            [math.isqrt(rows * columns)] * self._sizes.num_layers, math.isqrt(rows * columns * self.head_regions)
        )
        parts = wafer.token_parts(self._sizes, self.device, regions, context)
        return sum(parts.values()) * self.device["clock_hz"]
