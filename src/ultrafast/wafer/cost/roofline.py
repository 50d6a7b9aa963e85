"""Time of a step on GPUs, LPUs and dataflow parts: bytes and arithmetic under their rooflines, and what none has.

The weights are split over all devices (tensor parallelism), so that each layer ends with two all-reduces; beside those
a layer costs the launch of its kernels, which one user's token waits for and which large batches hide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ultrafast.errors import ConfigError
from ultrafast.wafer.cost.constants import constant
from ultrafast.wafer.device import Device
from ultrafast.wafer.precision import Precision
from ultrafast.wafer.shape import Shape

MOST_TOKENS = 1024
"""Sequences of one step at most: past it the published rates at full load are no longer those of the roofline."""

_STACKS = {"gpu": "trtllm", "lpu": "groq", "dataflow": "sambanova"}


@dataclass(frozen=True, slots=True)
class Group:
    """Devices that hold one model together.

    Attributes:
        device: what they are.
        count: how many.
        software: whose constants hold (`data/fitted.json`); "": those of the newest stack that is known for the kind.
    """

    device: Device
    count: int
    software: str = ""

    @property
    def stack(self) -> str:
        return self.software or _STACKS[self.device.kind]

    @property
    def domains(self) -> int:
        """Groups of directly joined devices that it spans."""
        return -(-self.count // int(self.device.get("max_devices") or self.count))


def token_parts(shape: Shape, group: Group, precision: Precision, context: int, *, batch: int = 1) -> dict[str, float]:
    """Seconds of one step that makes a token for each of ``batch`` sequences, by what they go to.

    ``memory`` or ``arithmetic``, whichever is longer; ``launch`` and ``all-reduces``.
    """
    read_s = bytes_of_step(shape, precision, context, batch) / group.count / _bytes_per_s(group)
    math_s = flops_of_step(shape, context, batch) / group.count / _flops(group.device, precision, group.stack)
    parts = {"memory": read_s} if read_s >= math_s else {"arithmetic": math_s}
    parts["launch"] = shape.num_layers * constant(f"stack.{group.stack}.layer_s")
    if group.count > 1:
        payload = batch * shape.hidden_size * precision.activations / 8
        parts["all-reduces"] = 2 * shape.num_layers * (_all_reduce_s(group) + payload / _collective(group))
    return parts


def prefill_s(shape: Shape, group: Group, precision: Precision, tokens: int) -> float:
    """Seconds of the prompt of one sequence."""
    flops = 2 * _layer_parameters(shape) * tokens + 2 * attention_flops(shape, tokens) * tokens / 2
    seconds = flops / group.count / _flops(group.device, precision, group.stack)
    seconds += shape.num_layers * constant(f"stack.{group.stack}.layer_s")
    if group.count > 1:
        payload = tokens * shape.hidden_size * precision.activations / 8
        name = "prefill_all_reduce_far_s" if group.domains > 1 else "prefill_all_reduce_s"
        latency = constant(f"stack.{group.stack}.{name}")
        seconds += 2 * shape.num_layers * (latency + payload / _collective(group))
    return seconds


def bytes_of_step(shape: Shape, precision: Precision, context: int, batch: int) -> float:
    """Bytes that a step reads: each weight that any sequence needs once, and the cache of every sequence.

    Of c experts, ``batch`` tokens that pick a each at random touch c (1 - (1 - a / c)^batch).
    """
    weights = 0.0
    for matrix in shape.all_matrices():
        touched = float(matrix.active)
        if matrix.count > matrix.active > 0:
            touched = matrix.count * (1 - (1 - matrix.active / matrix.count) ** batch)
        weights += matrix.rows * matrix.columns * touched * precision.bits(matrix.kind) / 8
    return weights + batch * precision.kv_bytes(shape, context)


def flops_of_step(shape: Shape, context: int, batch: int) -> float:
    """Floating-point operations of a step: two a multiply-add."""
    return batch * 2 * (shape.num_active_parameters + attention_flops(shape, context) / 2)


def attention_flops(shape: Shape, context: int) -> float:
    """Operations of scores and weighted values of one token that attends to ``context`` positions, all layers."""
    width = shape.num_heads * shape.head_dim * 2
    if shape.latent is not None:
        width = shape.num_heads * (2 * shape.latent.kv_rank + shape.latent.rope_dim)
    positions = (min(context, window) if window else context for window in shape.windows or [0] * shape.num_layers)
    return 2.0 * width * sum(positions)


def most_sequences(shape: Shape, group: Group, precision: Precision, context: int) -> int:
    """Sequences whose caches fit beside the weights.

    Raises:
        ConfigError: not even the weights fit; the message says by how much.
    """
    room = group.count * memory_bytes(group.device) * constant("memory_share")
    weights = precision.weight_bytes(shape)
    if weights > room:
        raise ConfigError(
            f"{shape.name} takes {weights / 1e9:,.1f} GB in {precision.name}; {group.count} x {group.device.title} "
            f"have room for {room / 1e9:,.1f} GB: {(weights - room) / 1e9:,.1f} GB too few"
        )
    return min(MOST_TOKENS, int((room - weights) / precision.kv_bytes(shape, context)))


def throughput(shape: Shape, group: Group, precision: Precision, lengths: tuple[int, int]) -> float:
    """Output tokens a second and device at full load, where each request has ``lengths`` of input and output tokens.

    As many sequences as fit decode together, and each also has its prompt computed: without gaps, one after the other.
    """
    inputs, outputs = lengths
    context = inputs + outputs // 2
    batch = most_sequences(shape, group, precision, context)
    if batch < 1:
        raise ConfigError(f"no sequence of {context} positions fits beside the weights")
    step_s = sum(token_parts(shape, group, precision, context, batch=batch).values())
    launch_s = shape.num_layers * constant(f"stack.{group.stack}.layer_s")  # hidden where prompts follow each other
    prompts_s = batch * (prefill_s(shape, group, precision, inputs) - launch_s)
    return batch * outputs / (outputs * step_s + prompts_s) / group.count


def memory_bytes(device: Device) -> float:
    """Where the weights of a device lie: its memory, or its SRAM where it has nothing else."""
    return device.get("memory_bytes") or device["sram_bytes"]


def _layer_parameters(shape: Shape) -> float:
    return shape.num_active_parameters - shape.head.parameters


def _bytes_per_s(group: Group) -> float:
    device = group.device
    speed = device.get("memory_bytes_per_s") or device["sram_bytes_per_s"]
    return speed * constant(f"stack.{group.stack}.memory_efficiency")


def _flops(device: Device, precision: Precision, stack: str) -> float:
    """Operations a second at the precision of the weights, or the narrowest that the device has above it."""
    for bits, name in ((4.5, "flops_4bit"), (8.5, "flops_8bit"), (32.0, "flops_16bit")):
        value = device.get(name)
        if precision.weights <= bits and value is not None:
            return value * constant(f"stack.{stack}.arithmetic_efficiency")
    return device["flops_16bit"] * constant(f"stack.{stack}.arithmetic_efficiency")


def _all_reduce_s(group: Group) -> float:
    return constant(f"stack.{group.stack}.{'all_reduce_far_s' if group.domains > 1 else 'all_reduce_s'}")


def _collective(group: Group) -> float:
    """Bytes a second of an all-reduce's payload; where the links are not known, they are part of the launches."""
    speed = group.device.get("link_bytes_per_s")
    return math.inf if speed is None else speed * constant(f"stack.{group.stack}.link_efficiency")
