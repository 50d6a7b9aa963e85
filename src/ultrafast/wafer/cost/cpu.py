"""Time of a token on CPUs: every weight is read once, from the last-level cache if all fit there, else from memory."""

from __future__ import annotations

from ultrafast.wafer.cost.constants import constant
from ultrafast.wafer.cost.roofline import attention_flops, bytes_of_step, flops_of_step
from ultrafast.wafer.device import Device
from ultrafast.wafer.precision import Precision
from ultrafast.wafer.shape import Shape

CACHE_SHARE = 0.8
"""Of the last-level cache, what weights may take before they push each other out (an assumption)."""


def token_parts(
    shape: Shape, device: Device, precision: Precision, context: int, *, batch: int = 1
) -> dict[str, float]:
    """Seconds of one step for ``batch`` sequences, by what they go to: ``cache`` or ``memory``, and ``arithmetic``: the
    part of it that reading does not hide, where the device's is known."""
    size = bytes_of_step(shape, precision, context, batch)
    parts = {"memory": size / device["memory_bytes_per_s"]}
    fits = precision.weight_bytes(shape) <= CACHE_SHARE * (device.get("l3_bytes") or 0)
    if fits and (cache := device.get("l3_bytes_per_s")):
        parts = {"cache": size / cache}
    if rate := device.get("decode_macs_per_s"):
        macs = batch * (shape.num_active_parameters + attention_flops(shape, context) / 2)
        parts["arithmetic"] = constant("cpu.unhidden_arithmetic") * macs / rate
    return parts


def prefill_s(shape: Shape, device: Device, precision: Precision, tokens: int) -> float | None:
    """Seconds of a prompt; None where the arithmetic of the device is not known."""
    rate = device.get("flops_8bit")
    if rate is None:
        return None
    seconds = flops_of_step(shape, tokens // 2, tokens) / rate
    return max(seconds, precision.active_bytes(shape) / device["memory_bytes_per_s"])
