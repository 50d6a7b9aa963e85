"""The trace of a token against the Trace Event Format, rule by rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.tiny import write_tiny_model
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import ModelShape
from ultrafast.wafer.mesh.operations import Operations, token_cycles
from ultrafast.wafer.mesh.timing import Clock
from ultrafast.wafer.mesh.trace import trace

LAYERS, ROWS, HERTZ = 3, 4, 1.1e9
Event = dict[str, Any]


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> Operations:
    with GgufFile(write_tiny_model(tmp_path_factory.mktemp("trace") / "model.gguf", layers=LAYERS)) as file:
        return Operations(ModelShape.from_gguf(file), Clock(ROWS, 6), 1)


@pytest.fixture(scope="module")
def document(operations: Operations) -> dict[str, Any]:
    made = trace(operations.layer(20), LAYERS, operations.head(), clock_hz=HERTZ, title="tiny")
    return json.loads(json.dumps(made, allow_nan=False))  # type: ignore[no-any-return]


def of(document: dict[str, Any], phase: str) -> list[Event]:
    return [event for event in document["traceEvents"] if event["ph"] == phase]


def test_every_event_has_the_fields_of_its_phase(document: dict[str, Any]) -> None:
    assert document["displayTimeUnit"] in ("ms", "ns")
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        phase = event["ph"]
        assert phase in ("X", "M", "s", "f")
        if phase != "M":
            assert event["ts"] >= 0
            assert isinstance(event["cat"], str)
        if phase == "X":
            assert event["dur"] >= 0
        if phase == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name")
            assert event["args"].keys() == {"sort_index" if event["name"] == "process_sort_index" else "name"}
        if phase in "sf":
            assert isinstance(event["id"], int)
        assert ("bp" in event) == (phase == "f")


def test_every_thread_is_named(document: dict[str, Any]) -> None:
    named = {(event["pid"], event["tid"]) for event in of(document, "M") if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in of(document, "X")} == named
    assert named == {(region, thread) for region in range(LAYERS + 1) for thread in range(ROWS + 1)}


def test_slices_of_a_thread_follow_each_other(document: dict[str, Any]) -> None:
    ends: dict[tuple[int, int], float] = {}
    for event in of(document, "X"):
        thread = event["pid"], event["tid"]
        assert event["ts"] >= ends.get(thread, 0.0) - 1e-9
        ends[thread] = event["ts"] + event["dur"]


def test_flows_lead_from_each_region_to_the_next(document: dict[str, Any]) -> None:
    starts, ends = ({event["id"]: event for event in of(document, phase)} for phase in "sf")
    assert starts.keys() == ends.keys() == set(range(1, LAYERS + 1))
    for number, start in starts.items():
        end = ends[number]
        assert (start["name"], start["cat"], start["pid"] + 1) == (end["name"], end["cat"], end["pid"])
        assert start["ts"] < end["ts"]
        for event in (start, end):  # each is bound to the slice around it
            around = [
                one
                for one in of(document, "X")
                if (one["pid"], one["tid"]) == (event["pid"], event["tid"])
                and one["ts"] - 1e-9 <= event["ts"] <= one["ts"] + one["dur"]
            ]
            assert around


def test_the_slices_of_the_operations_are_the_time_of_the_token(
    document: dict[str, Any], operations: Operations
) -> None:
    cycles, _ = token_cycles(operations.layer(20), LAYERS, operations.head())
    microseconds = sum(event["dur"] for event in of(document, "X") if event["tid"] == 0)
    assert microseconds == pytest.approx(cycles / HERTZ * 1e6)
