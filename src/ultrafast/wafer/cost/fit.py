"""Fits the constants that no data sheet has: each group on some of the published records, to be judged on the others.

python -m ultrafast.wafer.cost.fit    # writes data/fitted.json anew
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from ultrafast.wafer.cost.constants import Fitted, trying
from ultrafast.wafer.cost.published import Record, records
from ultrafast.wafer.cost.validate import row


@dataclass(frozen=True)
class Group:
    """Constants that are fitted together.

    Attributes:
        meanings: by constant: what it stands for.
        start: by constant: where the search begins.
        on: the records that they are fitted on.
    """

    meanings: Mapping[str, str]
    start: Mapping[str, float]
    on: Callable[[Record], bool]


def _starts(*prefixes: str) -> Callable[[Record], bool]:
    return lambda record: record.id.startswith(prefixes)


def _named(*ids: str) -> Callable[[Record], bool]:
    return lambda record: record.id in ids


def _gpu_of_paper(record: Record) -> bool:
    """The two models of 8B and 72B: the others are there to judge by."""
    return record.id.startswith("waferllm-a100") and "e2e" not in record.id and record.id.endswith(("-8b", "-72b"))


ASSUMED = {
    "memory_share": (0.9, "share of a device's memory that weights and caches may take, as serving stacks have it"),
    "cpu.unhidden_arithmetic": (
        0.9,
        "decode of SmolLM2 135M and Gemma 3 270M, two cores of a Zen 3, memory between 35 and 60 GB/s (docs/wafer.md)",
    ),
    "wafer.fill": (0.91, "40 GB of weights on a wafer of 44 GB, the vendor's rule of 20B parameters a system"),
    "stack.groq.memory_efficiency": (1.0, "SRAM at its stated speed: launches dominate"),
    "stack.groq.arithmetic_efficiency": (1.0, "as above"),
    "stack.groq.all_reduce_s": (0.0, "part of layer_s"),
    "stack.groq.all_reduce_far_s": (0.0, "part of layer_s"),
    "stack.groq.prefill_all_reduce_s": (0.0, "part of layer_s"),
    "stack.groq.prefill_all_reduce_far_s": (0.0, "part of layer_s"),
    "stack.sambanova.memory_efficiency": (0.75, "over 75 % of peak, as the vendor states for decode (62nd DAC)"),
    "stack.sambanova.arithmetic_efficiency": (0.5, "no figure is published"),
    "stack.sambanova.all_reduce_s": (0.0, "part of layer_s"),
    "stack.sambanova.all_reduce_far_s": (0.0, "part of layer_s"),
    "stack.sambanova.prefill_all_reduce_s": (0.0, "part of layer_s"),
    "stack.sambanova.prefill_all_reduce_far_s": (0.0, "part of layer_s"),
    "stack.trtllm.all_reduce_s": (5e-6, "a one-shot all-reduce of a few KB over NVLink"),
    "stack.trtllm.all_reduce_far_s": (20e-6, "the same over InfiniBand"),
    "stack.trtllm.prefill_all_reduce_s": (5e-6, "as all_reduce_s"),
    "stack.trtllm.prefill_all_reduce_far_s": (20e-6, "as all_reduce_far_s"),
}
"""Constants that are neither known nor fitted: (value, why)."""

GROUPS = (
    Group(
        {
            "wafer.step_cycles": "cycles to issue a vector instruction, whatever its length",
            "wafer.stage_cycles": "cycles of a PE's software for a message of a reduction (beta of PLMR)",
        },
        {"wafer.step_cycles": 24.0, "wafer.stage_cycles": 26.0},
        _starts("waferllm-decode-"),
    ),
    Group(
        {
            "wafer.prefill_mac_cycles": "cycles a multiply-add of a PE with four lanes, in matrix products",
            "wafer.prefill_shift_cycles": "cycles of a step of compute and shift beside its arithmetic",
        },
        {"wafer.prefill_mac_cycles": 0.9, "wafer.prefill_shift_cycles": 480.0},
        _starts("waferllm-prefill-"),
    ),
    Group(
        {"wafer.service_efficiency": "what a service reaches of what the layers alone would take"},
        {"wafer.service_efficiency": 0.7},
        _named("cerebras-llama31-8b-aa"),
    ),
    Group(
        {
            "stack.sglang.memory_efficiency": "of the memory's speed",
            "stack.sglang.arithmetic_efficiency": "of the peak, in long prompts",
            "stack.sglang.link_efficiency": "of the links' speed, in all-reduces",
            "stack.sglang.layer_s": "seconds of a layer that are neither bytes nor arithmetic: launches",
            "stack.sglang.all_reduce_s": "seconds of an all-reduce beside its payload, eight GPUs",
            "stack.sglang.all_reduce_far_s": "the same over two hosts",
            "stack.sglang.prefill_all_reduce_s": "the same of a prompt, eight GPUs",
            "stack.sglang.prefill_all_reduce_far_s": "the same of a prompt over two hosts",
        },
        {
            "stack.sglang.memory_efficiency": 0.8,
            "stack.sglang.arithmetic_efficiency": 0.72,
            "stack.sglang.link_efficiency": 0.08,
            "stack.sglang.layer_s": 5e-5,
            "stack.sglang.all_reduce_s": 5e-6,
            "stack.sglang.all_reduce_far_s": 5e-5,
            "stack.sglang.prefill_all_reduce_s": 1.7e-3,
            "stack.sglang.prefill_all_reduce_far_s": 2e-3,
        },
        _gpu_of_paper,
    ),
    Group(
        {"stack.sglang.end_to_end_decode": "time a token in end-to-end rows over that of decode rows; cause not known"},
        {"stack.sglang.end_to_end_decode": 2.0},
        lambda record: "e2e-8b" in record.id and "a100" in record.id and not record.id.endswith("4096-4096"),
    ),
    Group(
        {
            "stack.trtllm.memory_efficiency": "of the memory's speed",
            "stack.trtllm.arithmetic_efficiency": "of the peak at the precision of the weights",
            "stack.trtllm.link_efficiency": "of the links' speed, in all-reduces",
            "stack.trtllm.layer_s": "seconds of a layer that are neither bytes nor arithmetic",
        },
        {
            "stack.trtllm.memory_efficiency": 0.6,
            "stack.trtllm.arithmetic_efficiency": 0.5,
            "stack.trtllm.link_efficiency": 0.3,
            "stack.trtllm.layer_s": 1e-4,
        },
        lambda record: record.id.startswith("trtllm-llama33") or record.id == "b200x8-dsr1-nomtp",
    ),
    Group(
        {"speculation.draft_step_cost": "of a step, what each token of a draft adds to it"},
        {"speculation.draft_step_cost": 0.08},
        _named("b200x8-dsr1-mtp1", "b200x8-dsr1-mtp2"),
    ),
    Group(
        {"stack.groq.layer_s": "seconds of a layer on a line of LPUs"},
        {"stack.groq.layer_s": 4e-5},
        _named("groq-llama31-8b"),
    ),
    Group(
        {"stack.sambanova.layer_s": "seconds of a layer that are not bytes"},
        {"stack.sambanova.layer_s": 4e-6},
        _named("sambanova-llama31-8b"),
    ),
)


def solve(group: Group, on: Sequence[Record]) -> dict[str, float]:
    """The constants of a group that fit some records best: least squares of log ratios, softened for outliers."""
    names = list(group.start)
    start = np.array([group.start[name] for name in names])

    def residuals(scales: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        with trying(dict(zip(names, scales * start, strict=True))):
            predictions = [row(record).predicted or math.inf for record in on]
        return np.log([predicted / record.value for predicted, record in zip(predictions, on, strict=True)])

    found = least_squares(
        residuals, np.ones(len(names)), loss="soft_l1", f_scale=0.1, bounds=(1e-9, np.inf), x_scale=1.0
    )
    return dict(zip(names, (found.x * start).tolist(), strict=True))


def fit_all() -> dict[str, Fitted]:
    """Every constant. Each group sees those before it."""
    constants = {name: Fitted(value, "assumed", why) for name, (value, why) in ASSUMED.items()}
    for group in GROUPS:
        known = {name: one.value for name, one in constants.items()}
        on = [record for record in records() if group.on(record)]
        with trying(known | dict(group.start)):
            values = solve(group, on)
        ids = " ".join(record.id for record in on)
        constants |= {name: Fitted(value, ids, group.meanings[name]) for name, value in values.items()}
    return constants


def _rounded(one: Fitted) -> Fitted:
    return Fitted(float(f"{one.value:.4g}"), one.fitted_on, one.meaning)


if __name__ == "__main__":
    target = Path(str(resources.files("ultrafast.wafer") / "data" / "fitted.json"))
    found = {name: _rounded(one) for name, one in fit_all().items()}
    target.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
