"""`ultrafast bench agent` as a program: on real engines over every API, and on servers that misbehave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from typer.testing import CliRunner, Result

from support.client_servers import call
from support.scripted_engine import ScriptedEngine
from support.served import Served, served
from support.tiny import write_tiny_model
from ultrafast.bench.agent.task import Task
from ultrafast.bench.records import read_document, read_log
from ultrafast.cli.main import app
from ultrafast.engine.engine import Engine
from ultrafast.errors import UltrafastError

PROGRAM = [sys.executable, "-c", "from ultrafast.cli.main import main; main()", "bench", "agent"]
APIS = ("chat", "responses", "responses-continued", "socket")
WARM_UP = 3  # steps


def run(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "110"}
    return subprocess.run(
        [*PROGRAM, "--url", url, *arguments], capture_output=True, text=True, env=environment, timeout=120
    )


def run_here(url: str, *arguments: str) -> Result:
    """The same within this process, which saves its start; errors are the result's."""
    return CliRunner().invoke(app, ["bench", "agent", "--url", url, *arguments], env={"COLUMNS": "110"})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A model of two layers, with one token a byte: room for long conversations."""
    path = write_tiny_model(tmp_path_factory.mktemp("agent") / "tiny.gguf", context=65_536)
    with served(Engine(str(path), threads=1)) as server:
        yield server


def called(log: Path, arm: str) -> list[tuple[str, str]]:
    lines = [line for line in read_log(log) if line["arm"] == arm]
    return [(tool["name"], tool["arguments"]) for line in lines for tool in line["tool_calls"]]


def test_ten_steps_are_the_models_own_and_the_same_in_every_tier(tiny: Served, tmp_path: Path) -> None:
    files = {name: tmp_path / f"agent.{name}" for name in ("json", "html", "log", "record")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    tiers = ("--tier", "default", "--tier", "ultrafast")
    done = run(tiny.url, *tiers, "--api", "responses-continued", "--rounds", "1", "--step-tokens", "0", *options)
    assert done.returncode == 0, done.stderr
    arms = ["default · responses-continued", "ultrafast · responses-continued"]
    results = read_document(files["json"], "agent")["results"]
    assert [arm["arm"] for arm in results["arms"]] == arms
    for arm, told in zip(arms, results["arms"], strict=True):
        assert (told["num_complete"], told["num_by_model"], told["num_retries"]) == (1, 10, 0)
        assert told["states_times"]
        assert sum(told["parts"].values()) == pytest.approx(told["wall"]["value"])
        assert list(told["tiers_served"]) == [arm.split()[0]]
        assert called(files["log"], arm) == [(step.tool, json.dumps(step.arguments)) for step in Task(10).steps]
    assert len(results["speedups"]) == 1
    for task in results["runs"]:
        spans = [span for step in task["steps"] for span in step["timeline"]]
        assert spans[0]["start_s"] == 0.0
        assert spans[-1]["end_s"] == pytest.approx(task["wall_s"])
    assert files["html"].read_text().count("<svg") == 1
    assert f"{arms[-1]} is " in done.stdout
    recorded = [json.loads(line) for line in files["record"].read_text().splitlines()]
    assert [line["step"] for line in recorded] == [*range(1, 11)]


def test_the_embedded_model_does_its_steps_over_a_websocket(embedded_model_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "agent.json"
    options = ("--steps", "3", "--step-tokens", "0", "--rounds", "1", "--json", str(file))
    with served(Engine(str(embedded_model_path), threads=1)) as server:
        done = run(server.url, "--tier", "ultrafast", "--api", "socket", *options)
    assert done.returncode == 0, done.stderr
    (arm,) = read_document(file, "agent")["results"]["arms"]
    assert (arm["num_complete"], arm["num_by_model"], arm["num_retries"]) == (1, 3, 0)


def scripts(changes: Mapping[int, str], *, num_steps: int = 4) -> list[str]:
    """What a scripted model says: warm-up, then the steps of the task, with further answers put before some."""
    said = [call(step.tool, **step.arguments) for step in Task(WARM_UP).steps]
    for number, step in enumerate(Task(num_steps).steps, 1):
        said += [changes[number]] if number in changes else []
        said.append(call(step.tool, **step.arguments))
    return said


@pytest.mark.parametrize("api", APIS)
def test_wrong_calls_and_texts_are_counted(api: str, tmp_path: Path) -> None:
    wrong = call(Task(4).steps[1].tool, file="another.csv")
    engine = ScriptedEngine(scripts=scripts({2: wrong, 3: "I would rather talk."}), max_context=1_000_000)
    log, recording = tmp_path / "log", tmp_path / "recording"
    options = ("--api", api, "--steps", "4", "--step-tokens", "0", "--rounds", "1", "--log", str(log))
    with served(engine) as server:
        done = run_here(server.url, *options, "--record", str(recording))
        assert done.exit_code == 0, done.output
        lines = read_log(log)
        assert [line["problem"] for line in lines] == [None, "other arguments", None, "no call", None, None]
        assert [line["attempt"] for line in lines] == [1, 1, 2, 1, 2, 1]
        if api in ("chat", "socket"):
            again = run_here(server.url, "--api", api, "--rounds", "1", "--replay", str(recording))
            assert again.exit_code == 0, again.output
            assert "A replay of 6 requests" in again.stdout


def vanishing(requests: int) -> Any:
    """After so many requests, connections end in the middle of an answer."""
    left = requests

    def wrap(app: ASGIApp) -> ASGIApp:
        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal left
            if scope["type"] == "http" and scope["method"] == "POST":
                left -= 1
            if left >= 0 or scope["type"] != "http":
                await app(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
            await send({"type": "http.response.body", "body": b"data: ", "more_body": True})

        return wrapped

    return wrap


def test_a_server_that_goes_away_in_the_task_is_an_outcome(tmp_path: Path) -> None:
    file = tmp_path / "agent.json"
    engine = ScriptedEngine(scripts=scripts({}), max_context=1_000_000)
    with served(engine, wrap=vanishing(WARM_UP + 2)) as server:
        done = run_here(server.url, "--steps", "4", "--step-tokens", "0", "--rounds", "1", "--json", str(file))
    assert done.exit_code == 1
    (task,) = read_document(file, "agent")["results"]["runs"]
    assert not task["complete"]
    assert task["failure"].startswith("step 3: broken: ")
    assert "0 of 1" in done.stdout
    assert "a task ended at step 3" in " ".join(done.stdout.split())


def test_a_server_that_refuses_at_once_is_an_error_in_one_line() -> None:
    with served(ScriptedEngine(), wrap=vanishing(0)) as server:
        done = run(server.url)
    assert done.returncode == 1
    assert done.stderr.startswith("ultrafast: error: no tier · chat at ")
    assert "step 1: broken" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_wrong_options_are_errors_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{}")
    with served(ScriptedEngine()) as server:
        for options, words in [
            (("--replay", str(tmp_path / "bad.jsonl")), "bad.jsonl, line 1"),
            (("--api", "chat", "--api", "chat"), "asked for twice"),
            (("--replay", str(tmp_path / "bad.jsonl"), "--record", "x"), "of its own to --record"),
        ]:
            done = run_here(server.url, *options)
            assert isinstance(done.exception, UltrafastError)
            assert words in str(done.exception)
            assert "\n" not in str(done.exception)
        assert run_here(server.url, "--steps", "2").exit_code == 2


def test_ctrl_c_keeps_the_tasks_that_are_done(tmp_path: Path) -> None:
    file = tmp_path / "agent.json"
    said = scripts({})
    engine = ScriptedEngine(scripts=[*said, *said[WARM_UP:], *said[WARM_UP:]] * 100, max_context=1_000_000)
    with served(engine) as server:
        options = ("--steps", "4", "--step-tokens", "0", "--rounds", "1000", "--tool-seconds", "0.05")
        program = subprocess.Popen(
            [*PROGRAM, "--url", server.url, *options, "--json", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert program.stderr is not None
        while not (line := program.stderr.readline()).startswith("6/"):
            assert line, "it ended"
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=30)
    assert program.returncode == 130, err
    assert "tasks completed" in out
    assert 1 <= read_document(file, "agent")["results"]["arms"][0]["num_complete"] < 10
