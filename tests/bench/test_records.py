"""Documents and logs: what is written is read again, kills cost one line at most, and other files are refused."""

from __future__ import annotations

import contextlib
import getpass
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ultrafast.bench import records
from ultrafast.bench.client.call import Call, Chunk, Outcome, ServerTimes, ToolCall
from ultrafast.bench.records import CallLog, call_from_json, call_to_json, read_document, read_log
from ultrafast.bench.statistics import Estimate
from ultrafast.errors import ConfigError

CALL = Call(
    id="7",
    tags={"cell": "a", "prompt": 3, "share": 0.5},
    tier_asked="fast",
    intended_s=0.1,
    sent_s=0.2,
    first_token_s=0.3,
    done_s=2.0,
    chunks=[Chunk(0.3, 1.0, "thought", 4), Chunk(0.5, 2.5)],
    outcome=Outcome.BROKEN,
    status=200,
    output_tokens=4,
    token_source="chunks",
    server=ServerTimes(queue_s=0.01, drafted_tokens=3),
    text="héllo \U0001f680 \x00",
    tool_calls=[ToolCall("a", "f", "{}")],
    logprobs=[],
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def same(first: Any, second: Any) -> bool:
    """Equal, but that what is not a number is the word or the `null` that stands for it."""
    if isinstance(first, float) and not math.isfinite(first):
        return bool(second == (None if math.isnan(first) else "inf" if first > 0 else "-inf"))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


@given(results=st.dictionaries(st.text(), json_values, max_size=4))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_documents_are_read_as_written(results: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    doc = records.document("api", {"tiers": ["fast"]}, results)
    records.write_document(path, doc)
    read = read_document(path, "api")
    assert same(results, read["results"])
    assert read == doc
    assert list(tmp_path.iterdir()) == [path]


def test_document_says_what_it_is() -> None:
    doc = records.document("exam", {}, {})
    assert (doc["format"], doc["version"], doc["kind"]) == ("ultrafast-bench", 1, "exam")
    assert doc["made_at"].endswith("+00:00")
    assert doc["program"]["name"] == "ultrafast"
    assert doc["machine"]["cores"] >= 1
    assert doc["machine"]["memory_bytes"] > 2**20


def test_document_does_not_tell_who_ran_it(tmp_path: Path) -> None:
    text = json.dumps(records.document("api", {}, {}))
    for secret in (getpass.getuser(), os.fspath(Path.home()), os.fspath(Path.cwd()), os.uname().nodename):
        assert len(secret) < 4 or secret not in text


def test_what_json_lacks() -> None:
    made = {"e": Estimate(math.inf, -math.inf, math.nan, 3), "a": np.array([1.5, math.inf]), "n": np.int64(3)}
    assert records.plain(made) == {
        "e": {"value": "inf", "low": "-inf", "high": None, "n": 3},
        "a": [1.5, "inf"],
        "n": 3,
    }
    assert records.plain(Outcome.OK) == "ok"
    assert records.plain("half \ud83d") == "half ?"
    assert [records.number(value) for value in ("inf", "-inf", 2, 0.5)] == [math.inf, -math.inf, 2.0, 0.5]
    assert math.isnan(records.number(None))
    for wrong in ("nan", "1", True, []):
        with pytest.raises(ConfigError):
            records.number(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"format": "\xff"}', "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "a JSON object is needed"),
        (b"{}", "no format"),
        (b'{"format": "ultrafast-bench", "version": 2}', "version 2"),
        (b'{"format": "ultrafast-bench", "version": 1, "kind": "exam"}', "kind 'exam'"),
        (b'{"format": "ultrafast-bench", "version": 1, "kind": "api", "setup": {}}', "results is no object"),
    ],
)
def test_other_files_are_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=problem) as error:
        read_document(path, "api")
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_document(path, "api")
    with pytest.raises(ConfigError, match="cannot be written"):
        records.write_document(tmp_path / "no" / "a.json", {})
    with pytest.raises(ConfigError, match="cannot be written"):
        CallLog(tmp_path / "no" / "a.jsonl")


@given(raw=st.binary(max_size=60) | st.recursive(json_values, st.lists).map(lambda value: json.dumps(value).encode()))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_read_or_refused(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(raw)
    for read in (lambda: read_document(path, "api"), lambda: read_log(path)):
        with contextlib.suppress(ConfigError):
            read()


@given(data=st.dictionaries(st.sampled_from([*call_to_json(CALL), "odd"]), json_values, max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_object_is_a_call_or_refused(data: dict[str, Any]) -> None:
    with contextlib.suppress(ConfigError):
        call_from_json({**call_to_json(CALL), **data})


def test_calls_come_back(tmp_path: Path) -> None:
    bare = Call(id="8", tags={}, tier_asked=None, intended_s=0.0, chunks=[], tool_calls=[], logprobs=[])
    with CallLog(tmp_path / "log.jsonl") as log:
        log.append(CALL)
        log.append(bare)
        log.append({"anything": math.inf})
    first, second, third = read_log(tmp_path / "log.jsonl")
    assert call_from_json(first) == CALL
    assert call_from_json(second) == bare
    assert third == {"anything": "inf"}
    assert call_from_json(first).output_speed == CALL.output_speed


def test_log_is_on_disk_before_it_is_closed(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "log")
    log.append({"a": 1})
    assert read_log(tmp_path / "log") == [{"a": 1}]
    log.close()


def test_a_log_cut_anywhere_loses_one_line_at_most(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [{"id": number, "text": "é}{\n"} for number in range(3)]
    with CallLog(path) as log:
        for line in lines:
            log.append(line)
    raw = path.read_bytes()
    for cut in range(len(raw) + 1):
        path.write_bytes(raw[:cut])
        kept = raw[:cut].count(b"\n") + (raw[cut : cut + 1] == b"\n")
        assert read_log(path) == lines[:kept]
        with CallLog(path) as log:
            log.append({"id": "next"})
        assert read_log(path) == [*lines[:kept], {"id": "next"}]


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"a": 1}\n{"a": \n{"a": 3}\n')
    with pytest.raises(ConfigError, match="line 2: not JSON"):
        read_log(path)


def test_every_field_of_a_call_is_kept() -> None:
    assert set(call_to_json(CALL)) == set(Call.__dataclass_fields__)
    with pytest.raises(ConfigError):
        call_from_json({**call_to_json(CALL), "chunks": {"at_s": [1.0], "tokens": [], "kind": []}})
    assert call_from_json(call_to_json(replace(CALL, outcome=Outcome.OK))).is_ok
