"""Where the time of a task goes: the parts add up to the wall time, whatever a server states."""

from __future__ import annotations

import asyncio
import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agent_model import ManualClock, ObedientModel, arm, breaks, says
from ultrafast.bench.agent.records import Request, Step, TaskRun, ToolRun
from ultrafast.bench.agent.run import Settings, run_task
from ultrafast.bench.agent.speedup import amdahl, compare
from ultrafast.bench.agent.split import Part, call_pieces, timeline, totals
from ultrafast.bench.agent.summary import summarise
from ultrafast.bench.client.call import Call, ServerTimes


def task(name: str | None = None, *, round: int = 1, num_steps: int = 5, **model: Any) -> TaskRun:
    clock = ManualClock()
    settings = Settings(num_steps=num_steps, step_tokens=100)
    caller = ObedientModel(clock, **model)
    return asyncio.run(
        run_task(arm(tier=name), caller, clock, settings, round=round, on_step=lambda run, step: None)  # type: ignore[arg-type]
    )


def test_a_server_that_states_its_times_is_told_from_the_network() -> None:
    call = Call("c", {}, None, 10.0, sent_s=10.5, first_token_s=12.0, last_token_s=15.0, done_s=15.25)
    call.server = ServerTimes(0.5, 0.75, 3.0)
    assert list(call_pieces(call)) == [
        (Part.NETWORK, 10.0, 10.5),
        (Part.NETWORK, 10.5, 11.0),
        (Part.QUEUE, 11.0, 11.5),
        (Part.PREFILL, 11.5, 12.25),
        (Part.DECODE, 12.25, 15.25),
    ]


def test_of_a_server_that_does_not_only_first_token_and_stream_are_known() -> None:
    call = Call("c", {}, None, 10.0, sent_s=10.5, first_token_s=12.0, last_token_s=15.0, done_s=15.25)
    call.server = ServerTimes(queue_s=1.0)
    assert list(call_pieces(call)) == [
        (Part.NETWORK, 10.0, 10.5),
        (Part.FIRST_TOKEN, 10.5, 12.0),
        (Part.STREAM, 12.0, 15.25),
    ]


def test_times_of_another_clock_are_cut_to_what_passed_here() -> None:
    call = Call("c", {}, None, 0.0, sent_s=0.0, first_token_s=1.0, last_token_s=2.0, done_s=2.0)
    call.server = ServerTimes(1.0, 1.0, 2.0)
    assert [end - start for _, start, end in call_pieces(call)] == pytest.approx([0.0, 0.0, 0.5, 0.5, 1.0])


@pytest.mark.parametrize("states_times", [True, False])
def test_spans_follow_each_other_and_fill_the_wall_time(states_times: bool) -> None:
    run = task(states_times=states_times, changes={3: says("no")})
    spans = timeline(run)
    assert spans[0].start_s == 0.0
    assert spans[-1].end_s == pytest.approx(run.wall_s)
    for before, after in itertools.pairwise(spans):
        assert after.start_s == pytest.approx(before.end_s)
    sums = totals(spans)
    assert sum(sums.values()) == pytest.approx(run.wall_s)
    outputs = 5 * (1.0 + 0.2) + 0.2  # notes of 100 tokens, calls of 20, one of them twice
    if states_times:
        assert sums[Part.DECODE] == pytest.approx(outputs)
        assert sums[Part.PREFILL] == pytest.approx(11 * 0.5)
        assert sums[Part.QUEUE] == pytest.approx(sums[Part.NETWORK]) == pytest.approx(11 * 0.25)
        assert sums[Part.FIRST_TOKEN] == sums[Part.STREAM] == 0.0
    else:
        assert sums[Part.STREAM] == pytest.approx(outputs)
        assert sums[Part.FIRST_TOKEN] == pytest.approx(11 * 0.875)
        assert sums[Part.NETWORK] == pytest.approx(11 * 0.125)


_SECONDS = st.none() | st.floats(0, 100)


@given(
    times=st.lists(st.tuples(*[_SECONDS] * 4, st.tuples(*[_SECONDS] * 3)), max_size=4),
    tools=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=2),
    length=st.floats(0, 200),
)
def test_whatever_was_recorded_the_parts_add_up(times: Any, tools: Any, length: float) -> None:
    """Calls that overlap, ended before they began, or reach beyond their step."""
    requests = []
    for sent, first, last, done, stated in times:
        call = Call("c", {}, None, 5.0, sent_s=sent, first_token_s=first, last_token_s=last, done_s=done)
        call.server = ServerTimes(*stated)
        requests.append(Request("call", 1, call))
    step = Step(1, "x", 5.0, 5.0 + length, requests, [ToolRun("x", start, end) for start, end in tools])
    run = TaskRun("a", 1, 2, [step, Step(2, "y", 1000.0, 1001.0)])
    spans = timeline(run)
    assert all(span.seconds >= 0 for span in spans)
    assert sum(totals(spans).values()) == pytest.approx(run.wall_s)
    assert spans[-1].end_s == pytest.approx(run.wall_s)


@pytest.mark.parametrize(
    ("share", "speedup", "whole"),
    [(0.3, 2.5, 1.22), (0.5, 5, 1.67), (0.7, 12.5, 2.81), (0.9, 12.5, 5.81), (0.95, 2.5, 2.33), (0.9, math.inf, 10)],
)
def test_amdahls_law(share: float, speedup: float, whole: float) -> None:
    assert amdahl(share, speedup) == pytest.approx(whole, abs=0.005)


def test_amdahls_law_at_its_ends() -> None:
    assert amdahl(0.0, 100.0) == 1.0
    assert amdahl(1.0, 7.0) == pytest.approx(7.0)
    assert amdahl(1.0, math.inf) == math.inf


def test_what_is_predicted_is_what_is_observed_if_only_output_got_faster() -> None:
    runs = [task("slow", round=number, seconds_a_token=0.05) for number in range(1, 7)]
    runs += [task("fast", round=number, seconds_a_token=0.01) for number in range(1, 7)]
    found = compare("slow · chat", "fast · chat", runs)
    assert found is not None
    wall = 10 * 1.0 + 5 * 120 * 0.05, 10 * 1.0 + 5 * 120 * 0.01
    assert found.observed.value == pytest.approx(wall[0] / wall[1])
    assert (found.observed.low, found.observed.high) == pytest.approx([wall[0] / wall[1]] * 2)
    assert found.share == pytest.approx(30 / wall[0])
    assert found.output == pytest.approx(5.0)
    assert found.predicted is not None
    assert found.predicted.value == pytest.approx(found.observed.value)
    assert found.limit == pytest.approx(wall[0] / 10)
    assert found.saved[Part.DECODE] == pytest.approx(24.0)
    assert sum(found.saved.values()) == pytest.approx(wall[0] - wall[1])
    assert found.more_tokens == 0.0


def test_rounds_that_one_arm_did_not_complete_are_no_pairs() -> None:
    runs = [task("slow", round=1), task("fast", round=1, changes={2: breaks}), task("fast", round=2)]
    assert compare("slow · chat", "fast · chat", runs) is None
    runs.append(task("slow", round=2))
    found = compare("slow · chat", "fast · chat", runs)
    assert found is not None
    assert found.observed.n == 1


def test_without_token_counts_nothing_is_predicted() -> None:
    slow, fast = task("slow"), task("fast")
    fast.calls[0].output_tokens = None
    found = compare("slow · chat", "fast · chat", [slow, fast])
    assert found is not None
    assert found.predicted is found.output is found.more_tokens is None


def test_answers_that_came_in_one_piece_are_counted() -> None:
    run = task("slow", states_times=False)
    assert summarise(arm(tier="slow"), [run]).num_in_one_piece == 0
    run.calls[1].first_token_s = run.calls[1].last_token_s
    assert summarise(arm(tier="slow"), [run]).num_in_one_piece == 1


def test_a_summary_is_of_what_was_completed() -> None:
    runs = [task("slow", round=1), task("slow", round=2, changes={2: breaks}), task("fast")]
    summary = summarise(arm(tier="slow"), runs)
    assert (summary.num_runs, summary.num_complete, summary.num_steps, summary.num_by_model) == (2, 1, 10, 6)
    assert summary.failures == ["step 2: broken: the server went away"]
    assert summary.wall.value == pytest.approx(runs[0].wall_s)
    assert sum(summary.parts.values()) == pytest.approx(summary.wall.value)
    assert (summary.output_tokens, summary.prompt_tokens, summary.cached, summary.accepted) == (600, 1000, 0.5, 0.5)
    assert summary.output_speed == pytest.approx(100.0)
    assert summary.states_times
    assert summary.tiers_served == {"default": 13}
    assert summary.first_token.value == pytest.approx(1.0)
