"""`ultrafast ab …` from the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.scripted_engine import ScriptedEngine
from support.served import served
from ultrafast.cli.main import main

Command = Callable[..., "Ended"]
PROGRAM = [sys.executable, "-c", "from ultrafast.cli.main import main; main()", "ab"]


@dataclass
class Ended:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(ScriptedEngine()) as server:
        yield server.url


@pytest.fixture
def ab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs it in this process, in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["ultrafast", "ab", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return run


def test_a_run_and_its_reports(ab: Command, url: str, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}], "max_tokens": 20}\n' * 3)
    files = ("--json", "ab.json", "--html", "ab.html")
    made = ab("run", "--url", url, "--requests", "r.jsonl", "--price-input", "1", "--price-output", "2", *files)
    assert made.returncode == 0, made.stderr
    assert "3 pairs, 1 at once" in made.stdout
    assert "3 ultrafast" in made.stdout
    assert "$" in made.stdout
    assert "5/5" in made.stderr
    doc = json.loads((tmp_path / "ab.json").read_text())
    assert (doc["kind"], doc["setup"]["tasks"], doc["results"]["analysis"]["pairs"]) == ("ab", 3, 3)
    assert (tmp_path / "ab.html").read_text().startswith("<!doctype html>")
    again = ab("report", "ab.jsonl", "--exposure", "who.csv")
    assert again.stdout == made.stdout
    assert len((tmp_path / "who.csv").read_text().splitlines()) == 1 + 2 * 5
    plan = ab("plan", "ab.jsonl")
    assert "from 3 pairs of ab.jsonl" in plan.stdout


def test_a_worse_arm_has_its_own_status(ab: Command, url: str) -> None:
    made = ab("run", "--url", url, "--command", "test $ULTRAFAST_ARM = A", "--repeats", "12", "--margin", "20")
    assert made.returncode == 3, made.stderr
    assert made.stdout.startswith("Keep A: B gets fewer tasks right")
    assert "does the workflow use OPENAI_BASE_URL" in made.stdout


def test_ctrl_c_keeps_what_is_there(url: str, tmp_path: Path) -> None:
    words = ["run", "--url", url, "--command", "sleep 0.2", "--repeats", "50", "--warmups", "0"]
    process = subprocess.Popen(
        [*PROGRAM, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    journal = tmp_path / "ab.jsonl"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "of 50 planned" in out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["run"], "--command, --callable and --requests"),
        (["run", "--command", "x", "--callable", "a:b"], "one of --command"),
        (["run", "--command", "x", "--tier", "flex"], "1 tiers for two arms"),
        (["run", "--command", "x", "--tier", "flex", "--tier", "flex"], "A and B are the same"),
        (["run", "--command", "x", "--a", "speed=1"], "KEY=VALUE"),
        (["run", "--command", "x", "--tasks", "none.jsonl"], "none.jsonl"),
        (["run", "--command", "x", "--url", "http://127.0.0.1:9/v1"], "127.0.0.1:9"),
        (["report", "none.jsonl"], "none.jsonl"),
        (["outcome", "none.csv"], "none.csv"),
        (["assign", "none.txt", "--salt", "x"], "none.txt"),
    ],
)
def test_what_is_wrong_is_one_line(ab: Command, words: list[str], problem: str) -> None:
    made = ab(*words)
    assert made.returncode == 1
    assert made.stderr.startswith("ultrafast: error: ")
    assert made.stderr.count("\n") == 1
    assert problem in made.stderr


def test_users_and_their_outcomes(ab: Command, tmp_path: Path) -> None:
    (tmp_path / "users.txt").write_text("\n".join(f"u{n}" for n in range(400)))
    arms = ab("assign", "users.txt", "--salt", "s").stdout
    assert arms == ab("assign", "users.txt", "--salt", "s").stdout
    assert arms.splitlines()[0] == "user,arm"
    rows = [f"{line},{int(line.endswith('B'))}" for line in arms.splitlines()[1:]]
    (tmp_path / "t.csv").write_text("user,arm,back\n" + "\n".join(rows))
    shown = ab("outcome", "t.csv", "--planned", "200", "--json", "o.json")
    assert shown.returncode == 0, shown.stderr
    assert "back: A 0" in shown.stdout
    assert json.loads((tmp_path / "o.json").read_text())["kind"] == "ab-outcome"


def test_a_plan(ab: Command) -> None:
    shown = ab("plan", "--spread", "0.3", "--disagree", "5", "--margin", "2").stdout
    for words in ("10 %  39", "2 points  773", "37,675"):
        assert words in shown
