"""How a measurement is told: in a terminal, on a page, as a document."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from support.agent_model import ManualClock, ObedientModel, arm, breaks, says
from ultrafast.bench.agent import html, terminal
from ultrafast.bench.agent.records import TaskRun
from ultrafast.bench.agent.results import Results, results_of, to_document
from ultrafast.bench.agent.run import Settings, run_task
from ultrafast.bench.records import read_document, write_document

SETTINGS = Settings(num_steps=4, step_tokens=100)


def measured(**models: dict[str, Any]) -> Results:
    """One round; an arm a tier, with what its model does."""
    arms = [arm(tier=tier) for tier in models]
    runs: list[TaskRun] = []
    for one, model in zip(arms, models.values(), strict=True):
        clock = ManualClock()
        caller = ObedientModel(clock, **model)
        runs.append(
            asyncio.run(run_task(one, caller, clock, SETTINGS, round=1, on_step=lambda run, step: None))  # type: ignore[arg-type]
        )
    return results_of(arms, SETTINGS, rounds=1, num_recorded=0, runs=runs)


def shown(results: Results, *, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False).print(terminal.report(results, width=width))
    return out.getvalue()


def test_a_timeline_starts_each_step_where_the_last_one_ended() -> None:
    text = shown(measured(slow={"seconds_a_token": 0.0125}))
    bars = [line for line in text.splitlines() if line.strip()[:2] in ("1 ", "2 ", "3 ", "4 ")]
    assert len(bars) == 4
    drawn = [line.rsplit(" ", 1)[0] for line in bars]
    starts = [min(line.index(sign, 20) for sign in "~q▒█") for line in drawn]  # behind the names
    ends = [len(line) for line in drawn]
    assert starts[1:] == ends[:-1]
    assert all("█" in line and "▒" in line and "q" in line for line in bars)
    assert all(line.endswith(" 3.50") for line in bars)
    assert max(map(len, bars)) <= 100


def test_speed_ups_stand_beside_what_was_predicted() -> None:
    text = " ".join(shown(measured(slow={"seconds_a_token": 0.05}, fast={"seconds_a_token": 0.01})).split())
    assert "fast · chat is 2.50 (n = 1: too few for an interval) times as fast as slow · chat, over 1 pair." in text
    assert (
        "75% of the time of slow · chat is model output, which is 5.00 times as fast here: that predicts 2.50" in text
    )
    assert "No output speed could give more than 4.00." in text
    assert "Seconds saved a task: +19.20 (decode +19.20)." in text
    assert "not separable" not in text


def test_what_a_server_does_not_state_is_said() -> None:
    text = " ".join(shown(measured(slow={"states_times": False})).split())
    assert "network and server are not separable" in text
    assert "first token" in text
    assert " prefill " not in text.split("not separable")[0]


def test_failures_and_marked_steps_are_said() -> None:
    text = shown(measured(slow={"changes": {1: says("no"), 2: says("no")}}, fast={"changes": {3: breaks}}))
    assert "3 of 4" in text
    assert [line.endswith("!") for line in text.splitlines() if " list_files " in line] == [True]
    assert "fast · chat: a task ended at step 2: broken: the server went away" in " ".join(text.split())
    assert "times as fast" not in text


@pytest.mark.parametrize("changes", [{}, {0: breaks}])
def test_page_and_document_hold_what_was_measured(tmp_path: Path, changes: dict[int, Any]) -> None:
    results = measured(slow={"changes": changes}, fast={})
    html.page(results).write(tmp_path / "agent.html")
    page = (tmp_path / "agent.html").read_text()
    assert "patch" not in page  # four steps repair nothing
    assert "read_" in page
    write_document(tmp_path / "agent.json", to_document(results))
    told = read_document(tmp_path / "agent.json", "agent")["results"]
    assert [run["complete"] for run in told["runs"]] == [not changes, True]
    assert len(told["speedups"]) == (not changes)
    for run in told["runs"]:
        assert sum(run["parts"].values()) == pytest.approx(run["wall_s"])
