"""What peers.py measured, as a Markdown table and as JSON."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.client import Entrant
from engines.task import TASKS

OURS = "ultrafast"
_BEGIN, _END = "<!-- peers: written by make bench-peers -->", "<!-- peers: end -->"


@dataclass
class Outcome:
    """What one entrant did."""

    entrant: Entrant
    version: str = ""
    load_s: float | None = None
    error: str = ""  # why it could not be started
    errors: dict[str, str] = field(default_factory=dict)  # by task
    settings: dict[str, str] = field(default_factory=dict)  # the fastest, by task
    speeds: dict[str, dict[int, float]] = field(default_factory=dict)  # tokens per second, by task and round

    def median(self, task: str) -> float | None:
        speeds = self.speeds.get(task)
        return statistics.median(speeds.values()) if speeds else None


@dataclass
class Comparison:
    """One run of peers.py; `outcomes` in the order of the table."""

    cpu_model: str
    threads: int
    model: str
    system: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    complete: bool = True

    @property
    def tasks(self) -> list[str]:
        """Those that anybody did."""
        return [name for name in TASKS if any(name in outcome.speeds for outcome in self.outcomes.values())]

    def ratio(self, name: str, task: str) -> float | None:
        """Median over the rounds of ours / theirs; None where either is missing."""
        ours, theirs = self.outcomes[OURS].speeds.get(task, {}), self.outcomes[name].speeds.get(task, {})
        ratios = [ours[number] / theirs[number] for number in ours.keys() & theirs.keys()]
        return statistics.median(ratios) if ratios else None


def table(comparison: Comparison) -> str:
    """Markdown: medians, slowest and fastest round, ratios; settings and versions below."""
    tasks = comparison.tasks
    lines = [
        f"{comparison.model} on {comparison.cpu_model}, {comparison.threads} threads at most. Tokens/s: median of the "
        "rounds (slowest to fastest); in bold how many times faster Ultrafast was in the same round.",
        "",
        f"| engine | {' | '.join(TASKS[task].title for task in tasks)} | load |",
        f"|---|{'---|' * (len(tasks) + 1)}",
    ]
    for name, outcome in comparison.outcomes.items():
        if not outcome.error:
            cells = (_cell(comparison, name, task) for task in tasks)
            lines.append(f"| {outcome.entrant.title} | {' | '.join(cells)} | {outcome.load_s:.2f} s |")
    lines.append("")
    lines += [f"- {_details(outcome, tasks)}" for outcome in comparison.outcomes.values()]
    return "\n".join(lines)


def _cell(comparison: Comparison, name: str, task: str) -> str:
    speeds = comparison.outcomes[name].speeds.get(task)
    if not speeds:
        return "failed" if task in comparison.outcomes[name].errors else ""
    low, high = min(speeds.values()), max(speeds.values())
    text = f"{statistics.median(speeds.values()):,.0f} ({low:,.0f} to {high:,.0f})"
    ratio = comparison.ratio(name, task)
    return text if ratio is None or name == OURS else f"{text} **{ratio:.1f}×**"


def _details(outcome: Outcome, tasks: list[str]) -> str:
    title = outcome.entrant.title
    if outcome.error:
        return f"{title}: could not be run: {outcome.error}"
    by_setting: dict[str, list[str]] = {}
    for task in tasks:
        if task in outcome.settings:
            by_setting.setdefault(outcome.settings[task], []).append(TASKS[task].title)
    parts = [f"{setting} ({', '.join(titles)})" for setting, titles in by_setting.items()]
    parts += [f"{TASKS[task].title} failed: {error}" for task, error in outcome.errors.items()]
    return f"{title} ({outcome.version}): {'; '.join(parts)}"


def document(comparison: Comparison) -> str:
    """JSON with every sample."""
    return json.dumps({**_facts(comparison), "engines": _engines(comparison)}, indent=1) + "\n"


def _facts(comparison: Comparison) -> dict[str, Any]:
    return {
        "model": comparison.model,
        "cpu_model": comparison.cpu_model,
        "system": comparison.system,
        "threads": comparison.threads,
        "complete": comparison.complete,
    }


def _engines(comparison: Comparison) -> dict[str, Any]:
    return {
        name: {
            "title": outcome.entrant.title,
            "version": outcome.version,
            "error": outcome.error or None,
            "load_s": outcome.load_s,
            "tasks": {
                task: {
                    "setting": outcome.settings[task],
                    "tokens_per_s": list(speeds.values()),
                    "median": outcome.median(task),
                    "ours_times_faster": comparison.ratio(name, task),
                }
                for task, speeds in outcome.speeds.items()
            },
            "task_errors": outcome.errors,
        }
        for name, outcome in comparison.outcomes.items()
    }


def write_block(path: Path, text: str) -> None:
    """Replace what stands between the two marks in a file, or add it with the marks at the end."""
    content = path.read_text(encoding="utf-8")
    block = f"{_BEGIN}\n{text}\n{_END}"
    if _BEGIN in content:
        before, _, rest = content.partition(_BEGIN)
        _, _, after = rest.partition(_END)
        content = before + block + after
    else:
        content = f"{content.rstrip()}\n\n{block}\n"
    path.write_text(content, encoding="utf-8")
