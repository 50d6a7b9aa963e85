"""Every published figure that the catalogue covers, predicted and measured side by side."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ultrafast.errors import ConfigError
from ultrafast.wafer.cost import roofline, wafer
from ultrafast.wafer.cost.constants import constant, fitted
from ultrafast.wafer.cost.published import Record, records
from ultrafast.wafer.cost.roofline import Group
from ultrafast.wafer.cost.speculation import Speculation
from ultrafast.wafer.cost.wafer import Regions
from ultrafast.wafer.device import Device
from ultrafast.wafer.precision import Precision
from ultrafast.wafer.shape import Shape

_PAPER_SIDES = {"8B": (720, 420), "13B": (720, 420)}
"""Of prefill and decode in the end-to-end runs of WaferLLM, the fastest prefill and decode regions of its tables."""

_CONTEXT = 1024  # positions, where a record of a service says nothing
_CEILING = re.compile(r"announced|not a measurement|catalog|price-page|\bover \d|more than \d")
_MTP_TOKENS = {1: 1.92, 2: 2.58, 3: 2.82, 4: 2.99, 5: 3.01}  # acceptance by draft steps, in the records' contexts


@dataclass(frozen=True, slots=True)
class Row:
    """One record and what the model makes of it.

    Attributes:
        predicted: in the unit of the record's value; None where it is not covered.
        role: ``fitted`` (a constant was fitted on it), ``held out``, ``assumed`` (the record leaves out what it takes,
            so something is assumed), ``ceiling`` (a vendor's best or announced figure: shown, never judged), ``not
            covered``.
        note: what is assumed, or why it is not covered.
    """

    record: Record
    predicted: float | None
    role: str
    note: str = ""

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        assert self.predicted is not None
        return self.predicted / self.record.value - 1


def rows(published: Sequence[Record] | None = None) -> list[Row]:
    """All records, in their order; default: those that come with the planner."""
    return [row(record) for record in published or records()]


def row(record: Record) -> Row:
    """One record."""
    shape, device = record.shape, record.hardware
    if shape is None or device is None:
        missing = "model" if device is not None else "device"
        return Row(record, None, "not covered", f"no such {missing} in the catalogue")
    try:
        predicted, notes = _predict(record, shape, device)
    except (ConfigError, _NotStated) as error:
        return Row(record, None, "not covered", str(error))
    return Row(record, predicted, _role(record, notes), "; ".join(notes))


def median_error(rows: Iterable[Row]) -> float:
    """Median of the absolute errors."""
    errors = sorted(abs(row.error) for row in rows)
    middle = len(errors) // 2
    return errors[middle] if len(errors) % 2 else (errors[middle - 1] + errors[middle]) / 2


def of(rows: Sequence[Row], *roles: str, prefix: str = "") -> list[Row]:
    """Those of some roles whose ids begin so."""
    return [row for row in rows if row.role in roles and row.record.id.startswith(prefix)]


class _NotStated(Exception):
    """A record leaves out something that nothing can stand in for."""


def _role(record: Record, notes: list[str]) -> str:
    if any(record.id in one.fitted_on.split() for one in fitted().values()):
        return "fitted"
    if _CEILING.search(record.context or ""):
        return "ceiling"
    return "assumed" if notes else "held out"


def _predict(record: Record, shape: Shape, device: Device) -> tuple[float, list[str]]:
    if device.kind == "wafer":
        return _on_paper(record, shape, device) if record.kind == "paper" else _wafer_service(record, shape, device)
    return _on_group(record, shape, device)


def _on_paper(record: Record, shape: Shape, device: Device) -> tuple[float, list[str]]:
    """WaferLLM: layers alone, one at a time, keys and values as wide as queries and all in one head, as in its code."""
    shape = replace(shape, num_heads=1, num_kv_heads=1, head_dim=shape.num_heads * shape.head_dim)

    def regions(side: int) -> Regions:
        return Regions([side] * shape.num_layers, 0)

    def decode_s(side: int, context: int) -> float:
        return sum(wafer.token_parts(shape, device, regions(side), context).values())

    if record.side is not None:
        if record.metric == "prefill_tok_s":
            return 4096 / wafer.prefill_s(shape, device, regions(record.side), 4096), []
        return 1 / decode_s(record.side, 4096), []
    lengths = record.lengths
    if lengths is None:
        raise _NotStated("the lengths are not stated")
    prompt_side, decode_side = _PAPER_SIDES[record.model.rsplit("-", 1)[-1]]
    seconds = wafer.prefill_s(shape, device, regions(prompt_side), lengths[0])
    seconds += lengths[1] * decode_s(decode_side, lengths[0] + lengths[1] // 2)
    return lengths[1] / seconds, []


def _wafer_service(record: Record, shape: Shape, device: Device) -> tuple[float, list[str]]:
    notes = []
    precision = record.stated_precision
    if precision is None:
        precision = Precision.parse("bf16" if shape.experts is None else "fp8")
        notes.append(f"weights in {precision.name}")
    wafers = record.devices_used
    if wafers is None:
        wafers = math.ceil(precision.weight_bytes(shape) / (constant("wafer.fill") * device["sram_bytes"]))
        notes.append(f"as many wafers as the weights take: {wafers}")
    if record.metric == "ttft_s":
        raise _NotStated("the length of the prompt is not stated")
    parts = wafer.token_parts(shape, device, Regions.equal(shape, device, wafers), _CONTEXT)
    seconds = sum(parts.values()) / constant("wafer.service_efficiency")
    if record.speculative:
        raise _NotStated("the acceptance of its drafts is not stated")
    if record.speculative is None:
        notes.append("no drafting")
    return 1 / seconds, notes


def _on_group(record: Record, shape: Shape, device: Device) -> tuple[float, list[str]]:
    notes = []
    precision = record.stated_precision
    if precision is None:
        precision = Precision.parse("fp16" if record.kind == "paper" else "fp8" if device.kind == "lpu" else "bf16")
        if record.kind != "paper":
            notes.append(f"weights in {precision.name}")
    count = record.devices_used
    if count is None:
        if device.kind == "gpu":
            raise _NotStated("the number of devices is not stated")
        count = _least_count(shape, device, precision)
        notes.append(f"{count} devices")
    group = Group(device, count, "sglang" if record.kind == "paper" else "")
    if record.kind == "paper":
        return _on_gpus_of_paper(record, shape, group, precision), notes
    if record.metric == "throughput":
        if record.lengths is None:
            raise _NotStated("the lengths are not stated")
        return roofline.throughput(shape, group, precision, record.lengths), notes
    inputs, outputs = record.lengths or (_CONTEXT, 0)
    seconds = sum(roofline.token_parts(shape, group, precision, inputs + outputs // 2).values())
    if record.speculative:
        seconds = _drafted(record).token_s(seconds)
    return 1 / seconds, notes


def _on_gpus_of_paper(record: Record, shape: Shape, group: Group, precision: Precision) -> float:
    if record.metric == "prefill_tok_s":
        return 4096 / roofline.prefill_s(shape, group, precision, 4096)
    if record.metric == "decode_tok_s_user":
        return 1 / sum(roofline.token_parts(shape, group, precision, 4096).values())
    if record.lengths is None:
        raise _NotStated("the lengths are not stated")
    inputs, outputs = record.lengths
    token_s = sum(roofline.token_parts(shape, group, precision, inputs + outputs // 2).values())
    if record.lengths != (4096, 4096):
        # These rows of the table take about twice the time a token of its decode rows, whatever the number of GPUs;
        # those of 4096/4096 do not. The paper does not say why.
        token_s *= constant("stack.sglang.end_to_end_decode")
    return outputs / (roofline.prefill_s(shape, group, precision, inputs) + outputs * token_s)


def _least_count(shape: Shape, device: Device, precision: Precision) -> int:
    """Devices that the weights take; as many as one group has at least, where that is known."""
    room = roofline.memory_bytes(device) * constant("memory_share")
    least = math.ceil(precision.weight_bytes(shape) / room)
    return max(least, int(device.get("max_devices") or 1))


def _drafted(record: Record) -> Speculation:
    steps = next((n for n in _MTP_TOKENS if f"{n} draft step" in (record.context or "")), None)
    if steps is None or "relaxed" in (record.context or ""):
        raise _NotStated("the acceptance of its drafts is not stated")
    return Speculation(_MTP_TOKENS[steps], steps)
