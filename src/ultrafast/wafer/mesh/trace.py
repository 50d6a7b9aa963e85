"""A token's way through the layers, for trace viewers such as Perfetto.

Trace Event Format (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU): a process is the
region of a layer, its first thread the operations, and the others the rows of PEs; times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ultrafast.wafer.mesh.operations import Operation

Event = dict[str, Any]


def trace(
    layer: Sequence[Operation], num_layers: int, head: Sequence[Operation], *, clock_hz: float, title: str
) -> dict[str, Any]:
    """The trace of one token, as it is written to a JSON file."""
    events: list[Event] = []
    scale, start = 1e6 / clock_hz, 0.0
    for region in range(num_layers + 1):
        operations = layer if region < num_layers else head
        events += _names(region, f"layer {region}" if region < num_layers else "output projection", operations)
        if region:
            events.append(_flow("f", region, region, start))
        for operation in operations:
            events += _slices(region, operation, start, scale)
            start += operation.timing.cycles * scale
        if region < num_layers:
            # Within the last slice of the region: where it ends is no longer part of it.
            events.append(_flow("s", region + 1, region, start - 0.5 * operations[-1].timing.cycles * scale))
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"title": title, "clock_hz": clock_hz}}


def _names(region: int, name: str, operations: Sequence[Operation]) -> Iterator[Event]:
    yield _metadata("process_name", region, 0, {"name": name})
    yield _metadata("process_sort_index", region, 0, {"sort_index": region})
    yield _metadata("thread_name", region, 0, {"name": "operations"})
    for row in range(len(operations[0].timing.done)):
        yield _metadata("thread_name", region, row + 1, {"name": f"PE row {row}"})


def _slices(region: int, operation: Operation, start: float, scale: float) -> Iterator[Event]:
    """An operation, and on each row of PEs: until the last of them has computed, and until the last has the result."""
    timing = operation.timing
    arguments = {"cycles": timing.cycles, "closed form": operation.predicted}
    yield _slice(region, 0, operation.name, start, timing.cycles * scale, arguments)
    computed = timing.computed * scale
    for row, done in enumerate(timing.done.max(1) * scale):
        yield _slice(region, row + 1, operation.name, start, computed, {"part": "arithmetic"})
        yield _slice(
            region, row + 1, f"{operation.name}: sum", start + computed, float(done) - computed, {"part": "sum"}
        )


def _slice(region: int, thread: int, name: str, start: float, duration: float, arguments: Event) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": "operation" if thread == 0 else "PEs",
        "pid": region,
        "tid": thread,
        "ts": start,
        "dur": duration,
        "args": arguments,
    }


def _flow(phase: str, number: int, region: int, time: float) -> Event:
    flow = {"ph": phase, "name": "token", "cat": "token", "id": number, "pid": region, "tid": 0, "ts": time}
    return flow | ({"bp": "e"} if phase == "f" else {})


def _metadata(name: str, region: int, thread: int, arguments: Event) -> Event:
    return {"ph": "M", "name": name, "pid": region, "tid": thread, "args": arguments}
