"""`ultrafast verify` as a program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.served import Served, served
from support.tiny import write_tiny_model
from ultrafast.bench.records import read_document, read_log
from ultrafast.cli.main import main
from ultrafast.engine.engine import Engine

SMALL = ["--prompts", "20", "--samples", "4", "--max-tokens", "8"]
SMALL += ["--tool-requests", "0", "--questions", "0", "--pairs", "0"]


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The program, within this process: its imports take longer than most of what it is asked here."""

    def run_(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["ultrafast", "verify", *arguments])
        monkeypatch.setenv("COLUMNS", "110")
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capsys.readouterr())

    return run_


@pytest.fixture(scope="module")
def tiny(tiny_model_path: Path) -> Iterator[Served]:
    with served(Engine(str(tiny_model_path), threads=1)) as server:
        yield server


def test_two_tiers_of_one_model(run: Run, tiny: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    files = {name: tmp_path / name for name in ("json", "html", "calls")}
    written = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    done = run("--url", tiny.url, "--tier", "default", "--tier", "ultrafast", *SMALL, *written)
    assert done.returncode == 4, done.stderr + done.stdout
    assert "UNDERPOWERED: " in done.stdout
    assert "PASS         Greedy tokens\n  20 of 20 answers are equal" in done.stdout
    assert "SKIPPED      Right answers\n  left out." in done.stdout
    document = read_document(files["json"], "verify")
    assert document["results"]["verdict"] == "UNDERPOWERED"
    assert [level["verdict"] for level in document["results"]["levels"][:3]] == ["PASS"] * 3
    assert {line["tier_asked"] for line in read_log(files["calls"])} == {"default", "ultrafast"}
    assert "The same model?" in files["html"].read_text()
    assert all("sk-secret" not in file.read_text() for file in files.values())


def test_another_model_fails(run: Run, tiny: Served, tmp_path: Path) -> None:
    with served(Engine(str(write_tiny_model(tmp_path / "tiny.gguf", seed=5)), threads=1)) as other:
        done = run("--url", tiny.url, "--tier", "default", "--against-url", other.url, *SMALL)
    assert done.returncode == 3, done.stderr + done.stdout
    assert "FAIL         Greedy tokens" in done.stdout
    assert "a difference is shown already: Greedy tokens." in done.stdout


def test_the_engine_on_this_machine(run: Run, tiny_model_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "local.json"
    done = run("--local", str(tiny_model_path), "--prompts", "10", "--max-tokens", "6", "--json", str(file))
    assert done.returncode == 0, done.stderr + done.stdout
    assert "PASS         Bit identity" in done.stdout
    assert read_document(file, "verify")["results"]["verdict"] == "PASS"


def test_the_plan(run: Run) -> None:
    done = run("plan", "--power", "0.8", "--margin", "2", "--disagree", "5")
    assert done.returncode == 0
    assert "773 questions" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("", 1, "two arms are compared"),
        ("--tier a --tier b --against-tier c", 1, "two arms are compared"),
        ("--tier a --tier b --questions-file nowhere", 1, "nowhere: cannot be read"),
        ("--tier a --tier b --json /nowhere/file", 1, "/nowhere/file: cannot be written"),
        ("--tier a --tier b --url http://127.0.0.1:9/v1", 1, "no server answers"),
        ("--prompts 1", 2, "--prompts"),
        ("plan --power 2", 2, "--power"),
    ],
)
def test_mistakes_are_one_line(run: Run, arguments: str, code: int, says: str) -> None:
    done = run(*arguments.split())
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_both_arms_the_same(run: Run, tiny: Served) -> None:
    done = run("--url", tiny.url, "--tier", "default", "--against-tier", "default")
    assert done.returncode == 1
    assert "both arms are the same" in done.stderr
