"""`ultrafast simulate mesh`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.tiny import write_tiny_model
from ultrafast.cli import simulate_check
from ultrafast.cli.main import app
from ultrafast.errors import ConfigError, ModelNotFound


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["simulate", "mesh", *arguments], catch_exceptions=True)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_tiny_model(tmp_path / "tiny.gguf"))


def test_help_has_an_example() -> None:
    assert "Example: ultrafast simulate mesh --mesh 16x16" in " ".join(run("--help").output.split())
    assert "mesh" in CliRunner().invoke(app, ["simulate", "--help"]).output


def test_text_and_times_and_files(tmp_path: Path, model: str) -> None:
    trace, figures = tmp_path / "trace.json", tmp_path / "figures.json"
    result = run(
        model, "--mesh", "4x6", "--tokens", "3", "--prompt", "once", "--trace", str(trace), "--json", str(figures)
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("once")
    assert "2 layers of 4 x 6 PEs" in result.stdout
    assert "token 3 of 3" in result.stderr
    body = json.loads(figures.read_text())
    assert (body["rows"], body["columns"], body["device"], body["checks"]) == (4, 6, "wse-3", [])
    layer, head = (sum(one["cycles"] for one in body["operations"] if one["of"] == part) for part in ("layer", "head"))
    assert body["token_cycles"] == pytest.approx(body["num_layers"] * layer + head)
    assert body["token_cycles"] == pytest.approx(body["token_cycles_closed_forms"], rel=0.05)
    assert len(json.loads(trace.read_text())["traceEvents"]) > 100


def test_a_check_says_how_many_tokens_are_equal(model: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    result = run(model, "--check", "--tokens", "6", "--mesh", "5x4", "--prompt", "Hello there", "--json", str(figures))
    assert result.exit_code == 0, result.output
    assert "of 6 tokens are those of the fp32 reference" in result.stdout
    (check,) = json.loads(figures.read_text())["checks"]
    assert check["equal"]
    assert 0 < check["largest_logit_difference"] < 0.1


def test_a_check_fails_where_tokens_differ(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no near-ties allowed and sums that are none, it must not pass."""
    from ultrafast.wafer.mesh import numbers

    monkeypatch.setattr(numbers, "total", lambda partial: partial[0])
    result = run(model, "--check", "--tokens", "6", "--mesh", "5x4", "--prompt", "Hello there")
    assert result.exit_code == 1


def test_only_near_ties_may_differ() -> None:
    def checked(margin: float) -> simulate_check.Checked:
        return simulate_check.Checked([1, 2], [1, 3], [4.0, margin], 0.1, last=None)  # type: ignore[arg-type]

    assert checked(0.01).equal
    assert checked(0.01).turned == [0.01]
    assert not checked(0.2).equal


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--mesh", "0x4"], "a mesh of 0 x 4 PEs has no PE"),
        (["--mesh", "16"], "--mesh is '16'; it must be ROWSxCOLUMNS"),
        (["--mesh", "-4x4"], "must be ROWSxCOLUMNS"),
        (["--mesh", "400x400"], "160,000 PEs; 16,384 are the most that are simulated"),
        (["--mesh", "9999x2"], "larger than Cerebras WSE-3"),
        (["--device", "h100"], "is no mesh"),
        (["--device", "wse-9"], "did you mean"),
        (["--tokens", "0"], "--tokens is 0"),
        (["--tokens", "100000"], "was made for 512 at most"),
        (["--prompt", ""], "a prompt of 0 tokens"),
    ],
)
def test_what_is_refused(model: str, arguments: list[str], problem: str) -> None:
    result = run(model, *arguments)
    assert isinstance(result.exception, ConfigError)
    assert problem in str(result.exception)


def test_no_such_model() -> None:
    assert isinstance(run("no/such.gguf").exception, ModelNotFound)
