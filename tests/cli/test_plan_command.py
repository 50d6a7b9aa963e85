"""`ultrafast plan` and `ultrafast simulate serving`: what they print, and what they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from support.browser import CHROMIUM, visit
from ultrafast.cli.plan import plan
from ultrafast.cli.simulate_serving import serving
from ultrafast.errors import ConfigError
from ultrafast.wafer.cost.published import read_records, records


def run(command: Any, *arguments: str) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    app(list(arguments), standalone_mode=False)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    run(plan, *arguments)
    return capsys.readouterr().out


def test_a_plan_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "llama-3.1-70b", "--users", "2", "--target", "750")
    assert "takes 4 x Cerebras WSE-3" in out
    assert "750 tokens/s: no number of Cerebras WSE-3" in out
    assert "assumed: a service takes" in out
    assert "NVIDIA H200" in out


def test_a_plan_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    body = json.loads(printed(capsys, "gpt-5.6-class", "--precision", "fp8", "--target", "750", "--json"))
    made = body["plan"]
    assert made["devices"] > 40
    assert made["token_s"] == pytest.approx(sum(made["parts_s"].values()))
    assert made["bound"] in made["parts_s"]
    assert any("no size is published" in note for note in made["assumed"])
    assert len(made["placement"]["regions"]) >= 97
    assert body["reach"]["target"] == 750
    assert body["reach"]["acceptance"] or body["reach"]["count"]
    assert {other["device"] for other in body["others"]} == {"h100", "h200", "b200", "mi300x"}


def test_drafts_and_more_devices_are_faster(capsys: pytest.CaptureFixture[str]) -> None:
    plain, drafted = (
        json.loads(printed(capsys, "llama-3.1-405b", *more, "--json"))["plan"]
        for more in ([], ["--draft", "4", "--acceptance", "0.8"])
    )
    assert drafted["tokens_per_s"] > 2 * plain["tokens_per_s"]
    assert drafted["devices"] == plain["devices"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_report_opens_without_a_complaint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.html"
    printed(capsys, "llama-3.1-70b", "--html", str(path))
    text = path.read_text()
    assert text.count("<svg") == 4
    (visited,) = visit([path])
    assert not visited.complaints
    assert not [request for request in visited.requests if not request.startswith("file:")]


def test_prompts_may_be_computed_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["llama-3.1-70b", "--prompt", "8000", "--json"]
    here, there = (json.loads(printed(capsys, *arguments, *more))["plan"] for more in ([], ["--prefill-on", "h200"]))
    assert there["ttft_s"] != here["ttft_s"]
    assert there["tokens_per_s"] == here["tokens_per_s"]
    assert any("keys and values, 2.62 GB" in note for note in there["assumed"])
    with pytest.raises(ConfigError, match="computed elsewhere"):
        run(plan, "llama-3.1-8b", "--device", "h200", "--prefill-on", "b200")


def test_experts_are_cut_over_their_layer(capsys: pytest.CaptureFixture[str]) -> None:
    told = re.search(r"a token would take ([\d.]+) times", printed(capsys, "gpt-oss-120b", "--precision", "fp4"))
    assert told
    assert float(told[1]) > 2


def test_this_machine_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(printed(capsys, "smollm2-135m", "--device", "this", "--json"))["plan"]
    assert made["figures"]["memory_bytes_per_s"]["origin"] == "measured"
    assert set(made["parts_s"]) == {"memory", "arithmetic"}
    assert made["tokens_per_s"] > 1


def test_the_catalogue_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "--list")
    assert "kimi-k2" in out
    assert "wse-3" in out


def test_validation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "held out: 3" in printed(capsys, "--validate")
    some = [{"id": "new", "device": "H200", "devices_used": 8, "model": "Llama-3.1-8B", "precision": "bf16"}]
    some[0] |= {"metric": "decode_tok_s_user", "value": 300.0, "context": "batch 1", "speculative": False}
    some[0] |= {"kind": "independent", "source_url": "https://example.org"}
    path = tmp_path / "more.json"
    path.write_text(json.dumps(some))
    (row,) = json.loads(printed(capsys, "--records", str(path), "--json"))
    assert row["role"] == "held out"
    assert row["predicted"] > 0


@given(st.binary(max_size=100), st.integers(0, 2000))
@settings(deadline=None, max_examples=50)
def test_any_bytes_are_records_or_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int) -> None:
    path = tmp_path_factory.mktemp("records") / "r.json"
    good = json.dumps([{"id": record.id, "device": record.device} for record in records()[:20]]).encode()
    path.write_bytes(good[:at] + data + good[at:])
    with pytest.raises(ConfigError, match=r"no list of published measurements"):
        read_records(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "no model 'nosuch'"),
        (["llama-3.1-8b", "--device", "tpu"], "no device 'tpu'"),
        (["llama-3.1-8b", "--context", "-5"], "context is -5"),
        (["llama-3.1-8b", "--context", "many"], "no number of positions"),
        (["llama-3.1-8b", "--context", "512k"], "was made for 131,072"),
        (["llama-3.1-8b", "--precision", "fp3"], "no format 'fp3'"),
        (["llama-3.1-8b", "--users", "0"], "users is 0"),
        (["llama-3.1-8b", "--target", "-1"], "target of -1"),
        (["llama-3.1-8b", "--draft", "-1"], "draft"),
        (["llama-3.1-8b", "--draft", "2", "--acceptance", "1.5"], "acceptance"),
        (["llama-3.1-8b", "--devices", "-1"], "number of devices is -1"),
        (["llama-3.1-8b", "--prompt", "100000"], "prompt is 100000"),
        (["kimi-k2", "--max-devices", "4"], r"does not fit 4 x .* kB too few"),
        (["llama-3.1-405b", "--device", "h100", "--max-devices", "4"], r"GB too few"),
        (["llama-3.1-8b", "--network-ms", "-1"], "cannot be negative"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(plan, *arguments)


def test_a_simulation_of_many_users(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["llama-3.1-8b", "--requests", "3000", "--rate", "4", "--ultrafast-seats", "4", "--ttft", "5"]
    run(serving, *arguments)
    told = capsys.readouterr()
    assert "requests a second, on one core" in told.err
    assert "ultrafast" in told.out
    run(serving, *arguments, "--json")
    body = json.loads(capsys.readouterr().out)
    assert sum(tier["asked"] for tier in body["tiers"]) == 3000
    assert body["fewest_seats"] >= 1


def test_seats_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="caches of"):
        run(serving, "llama-3.1-8b", "--seats", "100000")
