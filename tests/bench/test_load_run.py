"""Whole runs against the reference endpoint, which tells the truth about itself."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import psutil
import pytest

from support.schedule_server import ReferenceEndpoint, reference_endpoint
from support.schedules import Schedule, Step, Truth, drawn
from ultrafast.bench.client.call import Call
from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.endpoint import Api, Endpoint
from ultrafast.bench.load.arrivals import ClosedLoop, Load, OpenLoop, Replay
from ultrafast.bench.load.plan import cells
from ultrafast.bench.load.results import Results, results_of
from ultrafast.bench.load.runner import Progress, Run, Setup, run
from ultrafast.bench.load.worker import Sampling
from ultrafast.report.estimate import Estimate
from ultrafast.traces import Trace, TraceCall

SHORT = Schedule(steps=[Step(0.02, 2), Step(0.01, 3)])


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceEndpoint]:
    with reference_endpoint(SHORT) as endpoint:
        yield endpoint


def measure(
    url: str,
    loads: Sequence[Load],
    *,
    calls: int,
    schedule: Schedule | None = None,
    api: Api = "chat",
    tiers: Sequence[str | None] = (None,),
    workers: int = 1,
    warm_up: int | None = None,
    progress: Progress = lambda *news: None,
) -> tuple[Run, Results]:
    lengths: Sequence[int | None] = [None] if isinstance(loads[0], Replay) else [32]
    setup = Setup(
        cells=cells(tiers, lengths, lengths, loads),
        endpoints={tier: Endpoint(url, "reference", api, tier) for tier in tiers},
        category="prose",
        sampling=Sampling(sends_seed=schedule is None, extra=schedule.asked() if schedule else {}),
        calls=calls,
        duration_s=None,
        warm_up=warm_up,
        workers=workers,
    )
    done = run(setup, RunClock(), progress, lambda call: None)
    return done, results_of(setup, done, None)


def measure_well(*arguments: Any, **more: Any) -> tuple[Run, Results]:
    """Again when the client found itself too slow: how busy this machine is, is not what is tested."""
    for _ in range(3):
        done, results = measure(*arguments, **more)
        if results.is_valid:
            return done, results
    pytest.skip(f"this machine is too busy: {results.cells[0].doubts}")


def truths_of(reference: ReferenceEndpoint, calls: Sequence[Call]) -> list[Truth]:
    by_id = {truth.id: truth for truth in reference.truths()}
    return [by_id[call.response_id] for call in calls]


def value(estimate: Estimate | None) -> float:
    assert estimate is not None
    return estimate.value


@pytest.mark.parametrize(
    ("load", "api", "calls", "workers"),
    [
        (ClosedLoop(1), "chat", 5, 1),
        (ClosedLoop(16), "responses", 48, 2),
        (ClosedLoop(64), "chat", 192, 1),
        (ClosedLoop(4), "socket", 8, 1),
        (OpenLoop(40.0, "constant"), "completions", 60, 1),
    ],
)
def test_every_figure_is_the_truth(
    reference: ReferenceEndpoint, load: Load, api: Api, calls: int, workers: int
) -> None:
    """Answers of 1 to 8 tokens a chunk, 0.05 to 0.2 s apart, another schedule for each; these APIs have no seed."""
    schedule = Schedule(steps=[Step(0.4, 3), *drawn(5).steps]) if api in ("responses", "socket") else None
    done, results = measure_well(reference.url, [load], calls=calls, schedule=schedule, api=api, workers=workers)
    (result,) = results.cells
    made = done.cells[0].calls
    truths = truths_of(reference, made)
    assert len(made) == calls
    quantiles = result.summary.quantiles
    for figure in ("ttft_s", "output_speed", "e2e_s", "longest_gap_s"):
        true = statistics.median(getattr(truth, figure) for truth in truths)
        assert value(quantiles[figure]["p50"]) == pytest.approx(true, rel=0.02), figure
    true = statistics.median(1 / truth.output_speed for truth in truths)
    assert value(quantiles["inter_token_s"]["p50"]) == pytest.approx(true, rel=0.02)
    tokens = sum(sum(truth.tokens) for truth in truths)
    assert sum(call.output_tokens or 0 for call in made) == tokens
    wall_s = sum(_wall_s(stretch.calls, truths_of(reference, stretch.calls)) for stretch in done.cells[0].stretches)
    assert result.summary.tokens_per_s.value == pytest.approx(tokens / wall_s, rel=0.02)


def _wall_s(calls: Sequence[Call], truths: Sequence[Truth]) -> float:
    ends = [truth.ended_s or 0.0 for truth in truths]
    return max(ends) - min(truth.received_s for truth in truths)


@pytest.mark.parametrize("limit", [None, 8])
def test_a_stall_is_seen_by_all_who_would_have_come(reference: ReferenceEndpoint, limit: int | None) -> None:
    """No coordinated omission: those whose turn falls into the stall wait, sent or not."""
    stall_s, load = 2.0, OpenLoop(100.0, "constant", limit)

    def stall_once(title: str, ended: int, *news: int) -> None:
        if ended == 40:
            reference.stall(after_s=0.0, for_s=stall_s)

    done, results = measure_well(reference.url, [load], calls=320, schedule=SHORT, warm_up=1, progress=stall_once)
    made = done.cells[0].calls
    assert sum(call.e2e_s > 0.1 for call in made if call.e2e_s) > 150
    p99 = value(results.cells[0].summary.quantiles["e2e_s"]["p99"])
    assert stall_s * 0.98 <= p99 <= stall_s * 1.5  # a busy machine adds to it, and nothing takes from it
    if limit:  # what those see who count from when there was room to send
        assert sum(call.done_s - call.sent_s > 0.5 for call in made if call.done_s and call.sent_s) <= limit


def test_a_trace_is_replayed_on_time(reference: ReferenceEndpoint) -> None:
    starts = [0.0, 0.3, 0.35, 0.35, 1.0, 1.9]
    rows = [TraceCall(start, 200 + 10 * place, 5 + place, (1, 2)) for place, start in enumerate(starts)]
    load = Replay(Trace("t.csv", "mooncake", rows), time_scale=0.5)
    done, results = measure_well(reference.url, [load], calls=len(rows), schedule=drawn(5))
    truths = truths_of(reference, done.cells[0].calls)
    began = truths[0].received_s
    assert [truth.received_s - began for truth in truths] == pytest.approx([s / 2 for s in starts], abs=0.02)
    assert sorted(truth.body["max_tokens"] for truth in truths) == [5, 6, 7, 8, 9, 10]
    assert results.cells[0].summary.cell.lengths == "lengths of the trace"


def test_tiers_take_turns_and_another_than_asked_is_told(reference: ReferenceEndpoint) -> None:
    schedule = Schedule(steps=SHORT.steps, tier="default")
    before = len(reference.truths())
    _, results = measure(reference.url, [ClosedLoop(1)], calls=15, tiers=("ultrafast", "default"), schedule=schedule)
    bodies = [truth.body for truth in reference.truths()[before:]]
    assert [cell.summary.downgraded for cell in results.cells] == [15, 0]
    asked = [body["service_tier"] for body in bodies if "schedule" in body]
    assert sum(one != other for one, other in pairwise(asked)) >= 5
    prompts = [body["messages"][0]["content"] for body in bodies if "schedule" in body]
    assert len(set(prompts)) == len(prompts) == 32


def test_a_client_that_is_held_up_is_found(reference: ReferenceEndpoint) -> None:
    """The process that makes the calls is stopped for 0.1 s again and again, as on a machine with too much to do."""
    over = threading.Event()

    def hold_up() -> None:
        while not over.wait(0.05):
            for child in psutil.Process().children(recursive=True):
                if "spawn_main" in " ".join(child.cmdline()):
                    child.send_signal(signal.SIGSTOP)
                    time.sleep(0.1)
                    child.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=hold_up)
    thread.start()
    try:
        _, held_up = measure(reference.url, [ClosedLoop(4)], calls=40, schedule=SHORT)
    finally:
        over.set()
        thread.join()
    assert not held_up.is_valid
    assert "reading what has come: p99 is" in held_up.cells[0].doubts[0]


def test_ctrl_c_keeps_what_is_done(reference: ReferenceEndpoint) -> None:
    def interrupt(title: str, ended: int, *news: int) -> None:
        if ended == 20:
            os.kill(os.getpid(), signal.SIGINT)

    done, results = measure(reference.url, [ClosedLoop(2)], calls=5000, schedule=SHORT, progress=interrupt)
    assert not done.is_complete
    assert 20 <= results.cells[0].summary.calls < 200
    assert results.cells[0].summary.outcomes["ok"] == results.cells[0].summary.calls
