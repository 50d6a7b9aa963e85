"""Workflows of every kind in pairs against a scripted server; what is written down, and what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ab_pairs import arms_at, run_pairs, setup_of
from support.scripted_engine import ScriptedEngine, text_of
from support.served import served
from ultrafast.bench.ab.run import design, inputs, journal
from ultrafast.bench.ab.run.process import Command, Function
from ultrafast.bench.ab.run.records import Pair, Plan, Run, Task
from ultrafast.bench.ab.run.replay import replay
from ultrafast.bench.ab.run.workflow import parse_outcome
from ultrafast.errors import ConfigError

ASK = (
    "import json, os, sys, urllib.request;"
    "body = {'model': 'any', 'messages': [{'role': 'user', 'content': 'x'}], 'max_tokens': 8};"
    "request = urllib.request.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', json.dumps(body).encode(),"
    " {'content-type': 'application/json', 'authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']});"
    "answer = json.load(urllib.request.urlopen(request));"
)
SHOW = (
    "e = os.environ; print(*(e['ULTRAFAST_' + n] for n in ('TASK', 'TIER', 'ARM', 'SEED')), sys.stdin.read().strip())"
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(ScriptedEngine()) as server:
        yield server.url


def test_a_command(url: str, tmp_path: Path) -> None:
    tasks = [Task(f"t {n}", {"id": f"t {n}", "n": n}) for n in range(3)]
    note = tmp_path / "seen"
    command = Command(f'{sys.executable} -c "{ASK}{SHOW}" >> {note} && echo "$MINE" >> {note}')
    pairs = run_pairs(url, command, tasks, tmp_path / "j.jsonl", env={"MINE": "own"})
    assert [pair.plan.task for pair in pairs] == ["t 0", "t 1", "t 2"]
    assert {pair.plan.order for pair in pairs} == {"AB", "BA"}
    for pair in pairs:
        a, b = pair.sides
        assert (a.arm, b.arm) == ("A", "B")
        assert [call.tier_served for run in pair.sides for call in run.calls] == ["default", "ultrafast"]
        assert all(run.success and run.ended == "done" and run.wall_s > 0 for run in pair.runs)
        assert all(run.start_s < call.intended_s < run.start_s + run.wall_s for run in pair.runs for call in run.calls)
    lines = note.read_text().splitlines()
    assert sorted(lines[::2])[:2] == ['t 0 default A 3 {"id":"t 0","n":0}', 't 0 ultrafast B 3 {"id":"t 0","n":0}']
    assert set(lines[1::2]) == {"own"}
    assert "sk-secret" not in (tmp_path / "j.jsonl").read_text()


@pytest.mark.parametrize(
    ("command", "ended", "success", "error"),
    [
        ("exit 3", "failed", False, "exit status 3"),
        ("echo oh no >&2; exit 1", "failed", False, "oh no"),
        ("""echo '{"success": false, "score": 2}'""", "done", False, None),
        ("""echo '{"success": true}' > $ULTRAFAST_OUTCOME; echo '{"success": false}'""", "done", True, None),
        ("echo '{\"success\": 7}' > $ULTRAFAST_OUTCOME", "failed", False, "success in the outcome is 7"),
        ("echo torn > $ULTRAFAST_OUTCOME", "failed", False, "no JSON"),
        ("echo '{\"seconds\": 0.25}' > $ULTRAFAST_OUTCOME", "done", True, None),
    ],
)
def test_how_a_command_may_end(
    url: str, tmp_path: Path, command: str, ended: str, success: bool, error: str | None
) -> None:
    (pair,) = run_pairs(url, Command(command), inputs.repeats(1), tmp_path / "j.jsonl")
    for run in pair.runs:
        assert (run.ended, run.success) == (ended, success)
        assert run.error == error or (error is not None and error in (run.error or ""))
    if "score" in command:
        assert pair.runs[0].outcomes == {"score": 2.0}
    if "seconds" in command:
        assert pair.runs[0].wall_s == 0.25


def test_a_limit_on_time_is_an_outcome_and_ends_everything(url: str, tmp_path: Path) -> None:
    mark = tmp_path / "left"
    command = Command(f"(sleep 0.6; touch {mark}) & sleep 30")
    start = time.monotonic()
    (pair,) = run_pairs(url, command, inputs.repeats(1), tmp_path / "j.jsonl", timeout_s=0.3)
    assert time.monotonic() - start < 10
    assert [(run.ended, run.success) for run in pair.runs] == [("timeout", False)] * 2
    time.sleep(0.7)  # by now a child that lived on would have left its mark
    assert not mark.exists()


def test_a_check_decides(url: str, tmp_path: Path) -> None:
    command = Command("echo answer of $ULTRAFAST_ARM")
    (pair,) = run_pairs(url, command, inputs.repeats(1), tmp_path / "j.jsonl", check="grep -q 'of B'")
    assert [run.success for run in pair.sides] == [False, True]
    assert [run.ended for run in pair.sides] == ["done", "done"]


def test_a_function(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_flow.py").write_text(
        "import time\ntime.sleep(0.3)\n"
        "def plain(c):\n    assert c.base_url.endswith('/v1') and c.seed == 3 and c.model == 'scripted'\n"
        "    return {'success': c.task['n'] == 1, 'score': 4, 'word': c.tier}\n"
        "async def later(c):\n    return c.arm == 'B'\n"
        "def broken(c):\n    raise KeyError('nothing there')\n"
    )
    monkeypatch.chdir(tmp_path)
    task = [Task("1", {"n": 1})]
    (pair,) = run_pairs(url, Function("my_flow:plain"), task, tmp_path / "a.jsonl")
    assert [run.outcomes for run in pair.sides] == [
        {"score": 4.0, "word": "default"}, {"score": 4.0, "word": "ultrafast"},
    ]  # fmt: skip
    assert all(run.success and run.wall_s < 0.2 for run in pair.runs)  # without the import, which takes longer
    (pair,) = run_pairs(url, Function("my_flow:later"), task, tmp_path / "b.jsonl")
    assert [run.success for run in pair.sides] == [False, True]
    (pair,) = run_pairs(url, Function("my_flow:broken"), task, tmp_path / "c.jsonl")
    assert [run.ended for run in pair.sides] == ["failed", "failed"]
    assert "nothing there" in (pair.runs[0].error or "")
    for name in ("my_flow", "my flow:x", ":x", "a:b.c"):
        with pytest.raises(ConfigError, match="module:function"):
            Function(name)


def test_recorded_requests(url: str, tmp_path: Path) -> None:
    steps = [{"messages": [{"role": "user", "content": f"{n}"}], "max_tokens": 6} for n in range(2)]
    file = tmp_path / "requests.jsonl"
    file.write_text(json.dumps({"id": "h", "steps": steps}) + "\n" + json.dumps({"input": "x", "max_output_tokens": 5}))
    tasks = inputs.read_requests(file)
    said = tmp_path / "said"
    pairs = run_pairs(url, replay, tasks, tmp_path / "j.jsonl", check=f"cat >> {said}; echo >> {said}")
    history, single = (pair.runs[0] for pair in pairs)
    assert [call.output_tokens for call in history.calls] == [6, 6]
    assert [call.output_tokens for call in single.calls] == [5]
    assert all(call.first_token_s is not None for run in (history, single) for call in run.calls)
    assert [json.loads(line) for line in said.read_text().splitlines()[:2]] == [text_of(6)] * 2


def test_a_recorded_request_that_is_refused(url: str, tmp_path: Path) -> None:
    tasks = [Task("1", {"messages": [], "max_tokens": 0})]
    (pair,) = run_pairs(url, replay, tasks, tmp_path / "j.jsonl")
    assert [(run.ended, run.success) for run in pair.runs] == [("failed", False)] * 2
    assert "status 4" in (pair.runs[0].error or "")


def test_pairs_of_the_same_arm(url: str, tmp_path: Path) -> None:
    pairs = run_pairs(url, Command("true"), inputs.repeats(4), tmp_path / "j.jsonl", aa_share=0.5)
    same = [pair for pair in pairs if pair.plan.kind == "aa"]
    assert [run.arm for pair in same for run in pair.runs] == ["A"] * 4
    assert len(pairs) == 6


PROGRAM = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = {path!r}
from support.ab_pairs import run_pairs
from ultrafast.bench.ab.run import inputs
from ultrafast.bench.ab.run.process import Command
run_pairs({url!r}, Command("echo x >> {count}; sleep 0.1"), inputs.repeats(6), Path({journal!r}))
"""


def test_kill_and_resume(url: str, tmp_path: Path) -> None:
    """Killed twice; in the end every pair is there once, and only those under way ran again."""
    path, count = tmp_path / "j.jsonl", tmp_path / "count"
    program = PROGRAM.format(path=[str(Path(__file__).parents[1])], url=url, count=count, journal=str(path))
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for wanted in (2, 4):
        process = subprocess.Popen([sys.executable, "-c", program], env=env)
        while not path.exists() or path.read_bytes().count(b"\n") < 1 + wanted:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert subprocess.run([sys.executable, "-c", program], env=env, check=True).returncode == 0
    pairs = journal.read(path).pairs
    assert sorted(pairs) == list(range(6))
    lines = path.read_text().splitlines()
    assert len(lines) == 7
    assert 12 <= len(count.read_text().split()) <= 16


def test_a_journal_goes_on_only_with_the_same_setup(url: str, tmp_path: Path) -> None:
    path, tasks = tmp_path / "j.jsonl", inputs.repeats(2)
    setup = setup_of(arms_at(url), tasks)
    journal.Writer(path, setup).close()
    journal.Writer(path, setup).close()
    with pytest.raises(ConfigError, match="another setup"):
        journal.Writer(path, setup_of(arms_at(url), inputs.repeats(3)))
    (tmp_path / "other").write_text('{"a": 1}\n')
    with pytest.raises(ConfigError, match="not a journal"):
        journal.Writer(tmp_path / "other", setup)


def test_the_design() -> None:
    tasks = inputs.repeats(200)
    plans = design.pairs(tasks, aa_share=0.2, warmups=3, seed=5)
    assert plans == design.pairs(tasks, aa_share=0.2, warmups=3, seed=5)
    assert [plan.number for plan in plans] == list(range(243))
    assert [plan.kind for plan in plans[:3]] == ["warmup"] * 3
    assert sorted(plan.task for plan in plans if plan.kind == "ab") == sorted(task.id for task in tasks)
    assert 70 <= sum(plan.order == "AB" for plan in plans) <= 130
    positions = [plan.number for plan in plans if plan.kind == "aa"]
    assert len(positions) == 40
    assert min(positions) < 60 < 190 < max(positions)
    seeds = {plan.task: {p.seed for p in plans if p.task == plan.task} for plan in plans}
    assert all(len(of_task) == 1 for of_task in seeds.values())
    assert design.pairs(tasks[:3], aa_share=0.01, warmups=0, seed=1)[0].kind in ("aa", "ab")
    assert sum(plan.kind == "aa" for plan in design.pairs(tasks[:3], aa_share=0.01, warmups=0, seed=1)) == 1


LINES = st.lists(
    st.binary(max_size=40)
    | st.from_type(dict[str, int]).map(lambda d: json.dumps(d).encode())
    | st.sampled_from([
        b'{"format": "ultrafast-ab-journal", "setup": {}}', b'{"id": []}', b'{"steps": 1}', b'{"steps": [1]}',
        b'{"id": "a"}', b'{"messages": []}', b'{"plan": {}, "runs": [1, 2]}', b'{"runs": [{"calls": {}}, {}]}',
    ]),
    max_size=4,
)  # fmt: skip


@given(LINES)
def test_hostile_files(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "hostile"
    path.write_bytes(b"\n".join(lines))
    for read in (inputs.read_tasks, inputs.read_requests, journal.read):
        try:
            read(path)
        except ConfigError as error:
            wrong = str(error)
        else:
            wrong = str(path)
        assert str(path) in wrong


@given(st.binary(max_size=60) | st.from_type(dict[str, float | str | None]).map(lambda d: json.dumps(d).encode()))
def test_hostile_outcomes(raw: bytes) -> None:
    try:
        said = parse_outcome(raw)
    except ValueError:
        return
    assert said.seconds is None or said.seconds > 0


def test_a_pair_survives_the_journal(tmp_path: Path) -> None:
    run = Run("A", 1.5, 2.5, "done", True, 0, None, {"score": 1.0, "word": "x"})
    pair = Pair(Plan(0, "ab", "t", "AB", 7), "2026-01-01", (run, Run("B", 4.0, 1.0, "failed", False, 1, "no")))
    arms = arms_at("http://127.0.0.1:9/v1")
    writer = journal.Writer(tmp_path / "j", setup_of(arms, inputs.repeats(1)))
    writer.add(pair)
    writer.close()
    back = journal.read(tmp_path / "j").pairs[0]
    assert (back.plan, back.runs[0].outcomes, back.runs[1].error) == (pair.plan, run.outcomes, "no")
