"""How the measurement looks in a terminal: a table of the arms, what they gain, and each arm's task as a timeline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ultrafast.bench.agent.records import TaskRun
from ultrafast.bench.agent.results import Results
from ultrafast.bench.agent.split import Part, timeline
from ultrafast.bench.agent.words import about, cells, notes, sentences

_STYLES = {
    Part.QUEUE: ("q", "yellow"),
    Part.PREFILL: ("▒", "cyan"),
    Part.DECODE: ("█", "green"),
    Part.FIRST_TOKEN: ("▒", "cyan"),
    Part.STREAM: ("█", "green"),
    Part.NETWORK: ("~", "magenta"),
    Part.TOOLS: ("#", "blue"),
    Part.IDLE: ("·", "dim"),
}


def report(results: Results, *, width: int) -> RenderableType:
    """Everything, as wide as the terminal."""
    lines: list[RenderableType] = [Text(about(results)), "", _table(results), ""]
    lines += [Text(sentence) for sentence in sentences(results)]
    chosen = results.typical_runs()
    if chosen:
        longest = max(run.wall_s for run in chosen)
        lines += ["", _legend(chosen)]
        for run in chosen:
            lines += ["", Text(f"{run.arm}: round {run.round}, {run.wall_s:.2f} s"), *_drawn(run, longest, width)]
    lines += ["", *(Text(note, style="dim") for note in notes(results))]
    return Group(*lines)


def _table(results: Results) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("mean of a task")
    for summary in results.summaries:
        table.add_column(summary.arm, justify="right")
    for row in cells(results):
        table.add_row(*row)
    return table


def _legend(runs: Sequence[TaskRun]) -> Text:
    present = {span.part for run in runs for span in timeline(run)}
    legend = Text()
    for part, (sign, style) in _STYLES.items():
        if part in present:
            legend.append(sign * 2, style).append(f" {part}   ")
    return legend


def _drawn(run: TaskRun, longest_s: float, width: int) -> list[Text]:
    """A line a step: when it began in the task, and on what its time went."""
    names = [f"{step.number:>3} {step.title}"[:28] for step in run.steps]
    margin = max(map(len, names)) + 1
    columns = max(10, width - margin - 8)
    spans = timeline(run)
    lines = []
    for step, name in zip(run.steps, names, strict=True):
        own = [span for span in spans if span.step == step.number]
        line = Text(name.ljust(margin) + " " * _column(own[0].start_s if own else 0.0, longest_s, columns))
        for span in own:
            sign, style = _STYLES[span.part]
            cells = _column(span.end_s, longest_s, columns) - _column(span.start_s, longest_s, columns)
            line.append(sign * cells, style)
        line.append(f" {step.end_s - step.start_s:.2f}" + ("" if step.by_model else " !"))
        lines.append(line)
    return lines


def _column(seconds: float, longest_s: float, columns: int) -> int:
    return math.floor(seconds / longest_s * columns) if longest_s > 0 else 0
