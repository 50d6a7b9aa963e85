"""The measurement as a page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ultrafast.bench.agent.records import TaskRun
from ultrafast.bench.agent.results import Results
from ultrafast.bench.agent.split import Part, timeline
from ultrafast.bench.agent.words import about, cells, notes, sentences
from ultrafast.report import plots
from ultrafast.report.page import Page


def page(results: Results) -> Page:
    """For `Page.write`."""
    endpoint = results.arms[0].endpoint
    facts = {
        "Endpoint": endpoint.base_url,
        "Model": endpoint.model,
        "Concurrency": "1 request at a time",
        "Rounds": f"{results.rounds}, arms in random order",
        "Made": datetime.now(UTC).isoformat(timespec="minutes"),
    }
    page = Page("An agent's task, timed", facts)
    lines = sentences(results)
    page.verdict(lines[0] if lines else about(results))
    page.text(about(results))
    for line in lines[1:]:
        page.text(line.strip())
    page.table(["mean of a task", *(arm.arm for arm in results.summaries)], cells(results))
    page.section("Where the time went")
    chosen = results.typical_runs()
    if chosen:
        page.figure(plots.timeline(_rows(chosen)), "For each arm the task of median wall time, step by step.")
    page.section("Notes")
    for note in notes(results):
        page.text(note)
    return page


def _rows(runs: Sequence[TaskRun]) -> list[plots.Row]:
    """A row for the name of each arm, then one a step. All parts are in the first, for the order of the legend."""
    spans = [timeline(run) for run in runs]
    present = {span.part for own in spans for span in own}
    rows: list[plots.Row] = []
    for run, own in zip(runs, spans, strict=True):
        legend = [plots.Span(0.0, 0.0, part) for part in Part if part in present] if not rows else []
        rows.append(plots.Row(f"{run.arm}: {run.wall_s:.1f} s", legend))
        rows += [
            plots.Row(
                f"{step.number} {step.title}",
                [plots.Span(span.start_s, span.end_s, span.part) for span in own if span.step == step.number],
            )
            for step in run.steps
        ]
    return rows
