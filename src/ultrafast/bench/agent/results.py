"""What a measurement came to: the arms' summaries and what each gains over the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ultrafast.bench.agent.records import Request, Step, TaskRun, cost
from ultrafast.bench.agent.run import Settings
from ultrafast.bench.agent.speedup import Speedup, compare
from ultrafast.bench.agent.split import timeline, totals
from ultrafast.bench.agent.summary import Summary, summarise
from ultrafast.bench.agent.ways import Arm
from ultrafast.bench.records import call_to_json, document


@dataclass(frozen=True, slots=True)
class Results:
    """Attributes:
    rounds: that were asked for.
    num_recorded: requests of the recording that was replayed; 0: the task was done.
    """

    arms: Sequence[Arm]
    settings: Settings
    rounds: int
    num_recorded: int
    runs: Sequence[TaskRun]
    summaries: Sequence[Summary]
    speedups: Sequence[Speedup]

    def typical_runs(self) -> list[TaskRun]:
        """Of each arm that has one, the complete run of median wall time."""
        chosen = []
        for arm in self.arms:
            own = [run for run in self.runs if run.arm == arm.name and run.is_complete]
            if own:
                chosen.append(sorted(own, key=lambda run: run.wall_s)[(len(own) - 1) // 2])
        return chosen


def results_of(
    arms: Sequence[Arm], settings: Settings, *, rounds: int, num_recorded: int, runs: Sequence[TaskRun]
) -> Results:
    speedups = [compare(arms[0].name, arm.name, runs, seed=settings.seed) for arm in arms[1:]]
    return Results(
        arms,
        settings,
        rounds,
        num_recorded,
        runs,
        [summarise(arm, runs) for arm in arms],
        [speedup for speedup in speedups if speedup is not None],
    )


def to_document(results: Results) -> dict[str, Any]:
    """For `bench.records.write_document`."""
    endpoint = results.arms[0].endpoint
    setup = {
        "url": endpoint.base_url,
        "model": endpoint.model,
        "arms": [
            {"name": arm.name, "tier": arm.endpoint.tier, "api": arm.way, "price": arm.endpoint.price}
            for arm in results.arms
        ],
        "concurrency": 1,
        "rounds": results.rounds,
        "replayed_requests": results.num_recorded,
        "task": results.settings,
    }
    runs = [_run(run) for run in results.runs]
    return document("agent", setup, {"arms": results.summaries, "speedups": results.speedups, "runs": runs})


def _run(run: TaskRun) -> dict[str, Any]:
    spans = timeline(run)
    return {
        "arm": run.arm,
        "round": run.round,
        "complete": run.is_complete,
        "failure": run.failure,
        "wall_s": run.wall_s,
        "parts": {part.value: seconds for part, seconds in totals(spans).items()},
        "retries": run.num_retries,
        "steps": [
            {
                "step": step.number,
                "title": step.title,
                "by_model": step.by_model,
                "seconds": step.end_s - step.start_s,
                "problems": [request.problem for request in step.requests if request.problem],
                "timeline": [
                    {"part": span.part, "start_s": span.start_s, "end_s": span.end_s}
                    for span in spans
                    if span.step == step.number
                ],
            }
            for step in run.steps
        ],
    }


def log_lines(arm: Arm, run: TaskRun, step: Step) -> list[dict[str, Any]]:
    """One object a request of a step, for a log: who, what of the tool, and the whole `Call`.

    ``tool_start_s`` and ``tool_end_s`` are with the request after which the tool ran.
    """
    return [_line(arm, run, step, request) for request in step.requests]


def _line(arm: Arm, run: TaskRun, step: Step, request: Request) -> dict[str, Any]:
    call, price = request.call, arm.endpoint.price
    tool = step.tools[0] if step.tools and request is step.requests[-1] else None
    return {
        "task": run.round,
        "arm": run.arm,
        "model": arm.endpoint.model,
        "step": step.number,
        "purpose": request.purpose,
        "attempt": request.attempt,
        "problem": request.problem,
        "tool": step.title if request.purpose == "call" else None,
        "tool_start_s": tool and tool.start_s,
        "tool_end_s": tool and tool.end_s,
        "cost_usd": cost(call, price) if price else None,
        **call_to_json(call),
    }
