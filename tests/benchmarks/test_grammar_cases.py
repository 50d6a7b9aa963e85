"""The measurements of constrained decoding, on little."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grammar_cases import coverage, decode, masks


def test_coverage_counts_what_a_grammar_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = [
        {
            "schema": {"type": ["integer", "null"], "title": "numbers"},
            "tests": [
                {"data": 12, "valid": True},
                {"data": 1.0, "valid": True},  # which is an integer, but is not written so
                {"data": "12", "valid": False},
            ],
        },
        {"schema": {"not": {}}, "tests": [{"data": 1, "valid": False}]},
    ]
    for draft in ("draft2020-12", "draft7"):
        folder = tmp_path / "tests" / draft
        folder.mkdir(parents=True)
        (folder / "type.json").write_text(json.dumps(groups))
    counts = coverage.measure(tmp_path)["draft7"]["llguidance"]
    assert counts == {"schemas": 2, "compiled": 1, "valid taken": 1, "valid not": 1, "invalid not": 1}
    assert "llguidance" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="name a checkout"):
        coverage.measure(tmp_path / "nothing")


def test_masks_are_timed_along_documents(capsys: pytest.CaptureFixture[str]) -> None:
    figures = masks.measure(rounds=2)
    for row in figures["microseconds"].values():
        assert 0 < row["llguidance"]["median"] <= row["llguidance"]["p99"] <= row["llguidance"]["worst"]
    assert "ticket" in capsys.readouterr().out


def test_decoding_is_timed_with_and_without(capsys: pytest.CaptureFixture[str]) -> None:
    figures = decode.measure(rounds=1, threads=1, max_tokens=16)
    assert figures["share"] == figures["constrained"][0] / figures["free"][0]
    assert "share" in capsys.readouterr().out
