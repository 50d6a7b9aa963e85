"""Time of a token and of a prompt on wafers: layers in series, each on its own region, all weights where used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ultrafast.wafer.cost import mesh
from ultrafast.wafer.cost.constants import constant
from ultrafast.wafer.device import Device
from ultrafast.wafer.shape import Shape

HOP_CYCLES = 1.0
"""A word passes one link a cycle (WaferLLM; a free fit of all decode cells gives 0.94)."""


@dataclass(frozen=True, slots=True)
class Regions:
    """Where the layers are: one square region each.

    Attributes:
        sides: PEs along a side of each layer's region.
        head_side: the same of the output projection; 0: it is left out.
        wafers: over how many they are spread.
    """

    sides: Sequence[int]
    head_side: int
    wafers: int = 1

    @classmethod
    def equal(cls, shape: Shape, device: Device, wafers: int, *, fill: float = 0.95) -> Regions:
        """All layers alike, and the head by its share of the parameters, on ``fill`` of the PEs."""
        cores = fill * device["cores"] * wafers
        head_share = shape.head.parameters / max(1, shape.num_parameters)
        side = math.isqrt(max(1, int(cores * (1 - head_share) / shape.num_layers)))
        return cls([side] * shape.num_layers, max(1, math.isqrt(int(cores * head_share))), wafers)


def token_parts(
    shape: Shape, device: Device, regions: Regions, context: int, *, batch: int = 1, apart: bool = False
) -> dict[str, float]:
    """Seconds of one token, by what they go to; their sum is the time of the token.

    ``arithmetic``, ``instructions``, ``hops`` and ``stages`` are those of the layers (`mesh.DecodeWork`), ``head`` is
    the output projection, ``wafer links`` the way from wafer to wafer.

    Args:
        apart: each expert has a square of its own, instead of a tile of every PE of its layer.
    """
    total = mesh.DecodeWork()
    for (layer, side), count in _kinds(shape, regions.sides).items():
        count_work = mesh.decode_with_regions if apart else mesh.decode
        total += count_work(shape, layer, side, context, batch=batch) * count
    clock = device["clock_hz"]
    parts = {name: cycles / clock for name, cycles in _cycles(total, device).items()}
    if regions.head_side:
        parts["head"] = sum(_cycles(mesh.head(shape, regions.head_side, batch=batch), device).values()) / clock
    if regions.wafers > 1:
        payload = batch * shape.hidden_size * 2  # bytes: the hidden state, in 16 bits
        hop = device["hop_latency_s"] + payload / device["off_wafer_bytes_per_s"]
        parts["wafer links"] = (regions.wafers - 1) * hop
    return parts


def prefill_s(shape: Shape, device: Device, regions: Regions, tokens: int) -> float:
    """Seconds of a prompt that passes as a whole through one layer after the other."""
    layers = _kinds(shape, regions.sides)
    cycles = sum(_prefill_cycles(shape, device, one, tokens, 0) * count for one, count in layers.items())
    return cycles / device["clock_hz"]


@dataclass(frozen=True, slots=True)
class PipelinedPrompt:
    """A prompt that passes the layers in pieces, so that all of them work at once.

    Attributes:
        pieces: how many.
        seconds: from its beginning to its end.
        occupied_s: how long it keeps the slowest layer from the next prompt.
    """

    pieces: int
    seconds: float
    occupied_s: float


def pipelined_prefill(shape: Shape, device: Device, regions: Regions, tokens: int) -> PipelinedPrompt:
    """With m pieces, m - 1 follow the first through the slowest layer; the best m of the powers of two counts."""
    layers = _kinds(shape, regions.sides)
    tried = []
    for pieces in (1 << n for n in range(min(12, tokens.bit_length()))):
        piece = -(-tokens // pieces)
        cycles = {one: _prefill_cycles(shape, device, one, piece, tokens - piece) for one in layers}
        whole = sum(cycles[one] * count for one, count in layers.items())
        slowest = max(cycles.values()) / device["clock_hz"]
        seconds = whole / device["clock_hz"] + (pieces - 1) * slowest
        tried.append(PipelinedPrompt(pieces, seconds, pieces * slowest))
    return min(tried, key=lambda one: one.seconds)


def _cycles(work: mesh.DecodeWork, device: Device) -> dict[str, float]:
    return {
        "arithmetic": work.macs / device["macs_per_cycle"],
        "instructions": work.steps * constant("wafer.step_cycles"),
        "hops": (work.hops + work.words) * HOP_CYCLES,
        "stages": work.stages * constant("wafer.stage_cycles"),
    }


def _prefill_cycles(shape: Shape, device: Device, one: tuple[int, int], tokens: int, before: int) -> float:
    layer, side = one
    work = mesh.prefill(shape, layer, side, tokens, before=before)
    lanes = device["macs_per_cycle"] / 4  # the constant was fitted where a PE has four
    arithmetic = constant("wafer.prefill_mac_cycles") / lanes * work.macs
    return arithmetic + constant("wafer.prefill_shift_cycles") * work.shifts


def _kinds(shape: Shape, sides: Sequence[int]) -> dict[tuple[int, int], int]:
    """One layer of each kind with its side, and how many there are of the kind: most models have one or two."""
    first: dict[object, tuple[int, int]] = {}
    counts: dict[tuple[int, int], int] = {}
    for layer, side in enumerate(sides):
        window = shape.windows[layer] if shape.windows else 0
        kind = (side, window, shape.experts is not None and shape.experts.in_layer(layer))
        one = first.setdefault(kind, (layer, side))
        counts[one] = counts.get(one, 0) + 1
    return counts
