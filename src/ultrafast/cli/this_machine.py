"""This machine as a device to plan for: what it has, and how fast it is just now."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ultrafast.wafer.device import Device
    from ultrafast.wafer.precision import Precision
    from ultrafast.wafer.shape import Shape

NAME = "this"
_TOKENS = 128  # that share each load of a weight in a prompt
_COLUMNS = 576  # of a matrix in cache: the speed hardly depends on it


def this_machine(shape: Shape, precision: Precision) -> Device:
    """Measure: reading as many bytes as the model has, and the arithmetic of the engine's kernels. Takes a second."""
    from ultrafast.engine import native
    from ultrafast.engine.native import choose_isa
    from ultrafast.engine.topology import default_threads, detect
    from ultrafast.models.ggml_type import GgmlType
    from ultrafast.wafer.device import Device, Figure

    machine = detect()
    threads, isa = len(default_threads(machine)), choose_isa(None)
    size = max(1 << 20, int(min(precision.active_bytes(shape), machine.memory_bytes / 4)))
    read = native.read_speed(size, threads)
    kind = GgmlType.Q4_1 if precision.weights < 6 else GgmlType.Q8_0

    def macs_per_s(tokens: int) -> float:
        return native.matmul_speed(isa=isa, type=int(kind), cols=_COLUMNS, tokens=tokens, threads=threads)

    kernel = f"matrix kernel of the engine, {isa}, {kind.name}, in cache"
    return Device(
        NAME,
        f"this machine ({machine.cpu_model}, {threads} cores)",
        "cpu",
        {
            "cores": Figure(threads, "measured", "that this process may use"),
            "memory_bytes": Figure(machine.memory_bytes, "measured", "free memory"),
            "memory_bytes_per_s": Figure(read.bytes_per_s, "measured", f"reading {size / 1e6:,.0f} MB, {read.method}"),
            "flops_8bit": Figure(2 * macs_per_s(_TOKENS), "measured", f"{kernel}, {_TOKENS} tokens at once"),
            "decode_macs_per_s": Figure(macs_per_s(1), "measured", f"{kernel}, one token"),
        },
    )
