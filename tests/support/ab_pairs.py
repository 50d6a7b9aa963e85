"""Pairs of runs for tests: two arms at one endpoint, the setup of a run, and all of it run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from ultrafast.bench.ab.run import design, journal
from ultrafast.bench.ab.run.records import Arm, Pair, Task
from ultrafast.bench.ab.run.runner import Runner
from ultrafast.bench.ab.run.setup import Setup, arm_setup, digest
from ultrafast.bench.ab.run.workflow import Workflow
from ultrafast.bench.client.endpoint import Endpoint, Price


def arms_at(url: str, **env: str) -> dict[str, Arm]:
    prices: dict[str | None, Price] = {"default": Price(1, 2), "ultrafast": Price(6, 12)}
    return {
        name: Arm(name, Endpoint(url, "scripted", tier=tier, api_key="sk-secret"), env, prices, cold=True)
        for name, tier in (("A", "default"), ("B", "ultrafast"))
    }


def run_pairs(
    url: str,
    workflow: Workflow,
    tasks: list[Task],
    path: Path,
    *,
    check: str | None = None,
    timeout_s: float = 30.0,
    concurrency: int = 1,
    aa_share: float = 0.0,
    env: Mapping[str, str] | None = None,
) -> list[Pair]:
    arms = arms_at(url, **(env or {}))
    seen: list[Pair] = []
    runner = Runner(workflow, arms, check=check, timeout_s=timeout_s, concurrency=concurrency, on_pair=seen.append)
    writer = journal.Writer(path, setup_of(arms, tasks))
    plans = design.pairs(tasks, aa_share=aa_share, warmups=0, seed=3)
    asyncio.run(runner.run(plans, {task.id: task for task in tasks}, writer))
    writer.close()
    return list(journal.read(path).pairs.values())


def setup_of(arms: dict[str, Arm], tasks: list[Task]) -> Setup:
    return Setup(
        workflow="w", arms={n: arm_setup(a) for n, a in arms.items()}, tasks=len(tasks), tasks_digest=digest(tasks),
        check=None, aa_share=0, warmups=0, seed=3, timeout_s=30, concurrency=1, margin=0.02, unit="$",
    )  # fmt: skip
