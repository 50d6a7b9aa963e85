"""Where a model lies on wafers: every layer on a rectangle of PEs, in the order in which a token passes them.

The rectangles of a wafer have the same area, to the PE, and stand in rows that run to and fro, so that a token moves to
a neighbour from layer to layer; the embedding comes first and the output projection last, each on as many rectangles as
it takes. Weights are cut into one tile a PE; experts too, each over the whole rectangle of its layer, so that whichever
are active all PEs work. Keys and values of all sequences lie where their layer is, spread evenly (the shifted cache of
WaferLLM).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ultrafast.errors import ConfigError
from ultrafast.wafer.cost.wafer import Regions
from ultrafast.wafer.device import Device
from ultrafast.wafer.precision import Precision
from ultrafast.wafer.shape import Matrix, Shape

RESERVE_BYTES = 6 * 1024
"""Of each PE's SRAM, for code, activations and messages: 4 to 8 kB, unpublished (an assumption)."""

PATHS = 32
"""Routes that a PE can have at once: a header of 5 bits names one (WaferLLM)."""

PATHS_USED = 2 * 3 + 4
"""What a layer takes at most: a two-level tree has 3 at a root, in both directions of the mesh, and 4 to neighbours."""

MOST_WAFERS = 4096

Role = Literal["embedding", "layer", "head"]


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of PEs and what lies on it.

    Attributes:
        wafer: number of the wafer, from 0.
        x, y, width, height: in PEs.
        role, layer: what it holds; ``layer`` is -1 for embedding and head.
    """

    wafer: int
    x: int
    y: int
    width: int
    height: int
    role: Role
    layer: int = -1

    @property
    def cores(self) -> int:
        return self.width * self.height


@dataclass(frozen=True)
class Placement:
    """A model on wafers.

    Attributes:
        regions: in the order of the token's way; an embedding or head may have several.
        wafers: how many.
        cores: PEs of the smallest region.
        weight_bytes, kv_bytes: of the fullest PE.
        room_bytes: SRAM of a PE without the reserve.
    """

    shape: Shape
    device: Device
    precision: Precision
    regions: Sequence[Region]
    wafers: int
    cores: int
    weight_bytes: float
    kv_bytes: float
    room_bytes: float

    @property
    def side(self) -> int:
        """PEs along a square of as many PEs: what the cost model takes a region for."""
        return math.isqrt(self.cores)

    @property
    def least_side(self) -> int:
        """The same of the smallest region that would still hold everything."""
        return math.ceil(math.sqrt(self.cores * (self.weight_bytes + self.kv_bytes) / self.room_bytes))

    def cost_regions(self, side: int = 0) -> Regions:
        """As the cost model takes them, each layer on ``side`` x ``side`` of its PEs; 0: on all."""
        heads = sum(region.role == "head" for region in self.regions)
        head_side = max(1, math.isqrt(self.cores * heads))
        return Regions([side or self.side] * self.shape.num_layers, head_side, self.wafers)

    @property
    def used_share(self) -> float:
        """Of the wafers' PEs, how many hold something."""
        width, height = _grid(self.device)
        return sum(region.cores for region in self.regions) / (self.wafers * width * height)


def place(
    shape: Shape, device: Device, precision: Precision, *, context: int, users: int = 1, wafers: int
) -> Placement:
    """Place a model on so many wafers.

    Args:
        context: positions that each sequence may have.
        users: sequences whose caches are there at once.

    Raises:
        ConfigError: it does not fit, or an argument is impossible; the message says by how much.
    """
    check(shape, context=context, users=users, wafers=wafers)
    regions = _laid_out(shape, device, precision, wafers)
    cores = min(region.cores for region in regions)
    weights = _layer_bytes(shape, precision) / cores
    cache = _kv_bytes(shape, precision, context, users) / cores
    room = device["sram_bytes_per_core"] - RESERVE_BYTES
    if weights + cache > room:
        raise ConfigError(
            f"{shape.name} does not fit {wafers} x {device.title} in {precision.name} with {users:,} x {context:,} "
            f"positions: its largest layer takes {weights / 1024:,.1f} kB of weights and {cache / 1024:,.1f} kB of "
            f"cache on each of {cores:,} PEs, which have {room / 1024:,.1f} kB: "
            f"{(weights + cache - room) / 1024:,.1f} kB too few"
        )
    return Placement(shape, device, precision, regions, wafers, cores, weights, cache, room)


def least_wafers(
    shape: Shape, device: Device, precision: Precision, *, context: int, users: int = 1, most: int = MOST_WAFERS
) -> int:
    """The fewest wafers that hold a model and the caches.

    Raises:
        ConfigError: ``most`` do not; the message says by how much.
    """
    check(shape, context=context, users=users, wafers=most)
    most_useful = min(most, MOST_WAFERS)
    place(shape, device, precision, context=context, users=users, wafers=most_useful)  # or the reason why not
    low, high = 1, most_useful
    while low < high:
        middle = (low + high) // 2
        try:
            place(shape, device, precision, context=context, users=users, wafers=middle)
            high = middle
        except ConfigError:
            low = middle + 1
    return low


def check(shape: Shape, *, context: int, users: int, wafers: int) -> None:
    """Refuse what no plan can be made for.

    Raises:
        ConfigError: naming the argument.
    """
    for name, value in (("context", context), ("users", users), ("wafers", wafers)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1")
    if context > shape.max_context:
        raise ConfigError(f"context is {context:,}; {shape.name} was made for {shape.max_context:,} positions at most")


def _laid_out(shape: Shape, device: Device, precision: Precision, wafers: int) -> list[Region]:
    """All regions along the token's way, as many on each wafer as on the others, or one more.

    How many the head takes depends on how large they are, and the other way round: the fewest that agree.
    """
    room = device["sram_bytes_per_core"] - RESERVE_BYTES
    ends = [shape.head] if shape.tied_embeddings else [shape.embedding, shape.head]
    counts = [1] * len(ends)
    while True:
        contents: list[tuple[Role, int]] = [] if shape.tied_embeddings else [("embedding", -1)] * counts[0]
        contents += [("layer", layer) for layer in range(shape.num_layers)]
        contents += [("head", -1)] * counts[-1]
        busiest = -(-len(contents) // wafers)
        cores = min((width * height for _, _, width, height in _rows(device, busiest)), default=0)
        if not cores:
            raise ConfigError(
                f"{shape.name} needs {len(contents):,} regions; {wafers} x {device.title} have no PE for each of them"
            )
        needed = [max(1, math.ceil(_bytes(matrix, precision) / (room * cores))) for matrix in ends]
        if needed <= counts:
            break
        counts = [max(pair) for pair in zip(needed, counts, strict=True)]
    regions, start = [], 0
    share, extra = divmod(len(contents), wafers)
    for wafer in range(wafers):
        count = share + (wafer < extra)
        here = contents[start : start + count]
        places = _rows(device, busiest)
        regions += [Region(wafer, *place, role, layer) for place, (role, layer) in zip(places, here, strict=False)]
        start += count
    return regions


def _rows(device: Device, count: int) -> list[tuple[int, int, int, int]]:
    """``count`` rectangles of about the same area, near to squares: (x, y, width, height) each, row by row, to and fro.

    A row has about as many as the next, and is as high as its share of them: hardly a PE is left over.
    """
    width, height = _grid(device)
    num_rows = min(count, max(1, round(math.sqrt(count * height / width))))
    share, extra = divmod(count, num_rows)
    places, y = [], 0
    for row in range(num_rows):
        columns = share + (row < extra)
        row_height, column_width = height * columns // count, width // columns
        order = range(columns) if row % 2 == 0 else reversed(range(columns))
        places += [(column * column_width, y, column_width, row_height) for column in order]
        y += row_height
    return places


def _grid(device: Device) -> tuple[int, int]:
    return int(device["grid_width"]), int(device["grid_height"])


def _bytes(matrix: Matrix, precision: Precision) -> float:
    return matrix.parameters * precision.bits(matrix.kind) / 8


def _layer_bytes(shape: Shape, precision: Precision) -> float:
    """Weights of the largest layer."""
    return max(sum(_bytes(matrix, precision) for matrix in shape.matrices(layer)) for layer in _kinds(shape))


def _kv_bytes(shape: Shape, precision: Precision, context: int, users: int) -> float:
    """Cache of the layer that has most."""
    return users * max(shape.kv_elements(layer, context) for layer in _kinds(shape)) * precision.kv / 8


def _kinds(shape: Shape) -> Sequence[int]:
    """One layer of each kind."""
    kinds: dict[object, int] = {}
    for layer in range(shape.num_layers):
        window = shape.windows[layer] if shape.windows else 0
        kinds.setdefault((window, shape.experts is not None and shape.experts.in_layer(layer)), layer)
    return list(kinds.values())
