"""The report of a run: one page, in a terminal and as HTML, and the same as a document for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ultrafast.bench import records
from ultrafast.bench.ab.analysis import money
from ultrafast.bench.ab.analysis.arm import ArmSummary
from ultrafast.bench.ab.analysis.compare import Analysis, analyse
from ultrafast.bench.ab.analysis.verdict import Verdict, decide
from ultrafast.bench.ab.analysis.words import amount, amount_range, factor, number, percent, seconds
from ultrafast.bench.ab.outcomes import paired_outcomes
from ultrafast.bench.ab.run.records import Arm, Pair
from ultrafast.bench.ab.run.setup import RELATIVE, ArmSetup, Setup
from ultrafast.bench.statistics import Estimate, describe, proportion
from ultrafast.report.page import Page, Tone

Table = tuple[Sequence[str], Sequence[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Report:
    """All that is shown of a run.

    Attributes:
        setup: as the journal has it.
        curve: rows of a deadline in seconds and the share of tasks right by then, in A and in B.
        times: seconds until right, by arm; `inf` for never.
    """

    setup: Setup
    analysis: Analysis
    verdict: Verdict
    curve: list[tuple[float, Estimate, Estimate]]
    times: Mapping[str, Sequence[float]]
    outcomes: Table | None = field(default=None)


def make(setup: Setup, pairs: Sequence[Pair], arms: Mapping[str, Arm], *, hour: float | None) -> Report:
    """
    Args:
        hour: what an hour of waiting is worth to the user, in dollars, if they said so.
    """
    analysis = analyse(pairs, arms, planned=setup.tasks, margin=setup.margin, unit=setup.unit)
    compared = [pair for pair in pairs if pair.plan.kind == "ab"]
    times = {name: [_until_right(pair, side) for pair in compared] for side, name in enumerate("AB")}
    net = None
    if hour is not None:
        sides = [pair.sides for pair in compared if all(run.ended == "done" for run in pair.runs)]
        extra = [money.cost_of_run(arms["B"], b) - money.cost_of_run(arms["A"], a) for a, b in sides]
        net = money.net_of_pairs(extra, [a.wall_s - b.wall_s for a, b in sides], hour) if sides else None
    verdict = decide(analysis, hour=hour, net=net)
    return Report(setup, analysis, verdict, _curve(times), times, _outcomes(compared))


def document(report: Report) -> dict[str, Any]:
    """For programs: kind ``ab``."""
    results = {
        "verdict": report.verdict,
        "analysis": report.analysis,
        "deadlines": [{"seconds": at, "a": a, "b": b} for at, a, b in report.curve],
    }
    return records.document("ab", records.plain(report.setup), results)


def text(report: Report) -> str:
    """For a terminal."""
    parts = [report.verdict.text, *(f"  · {line}" for line in report.verdict.sure)]
    parts += [f"  ! {line}" for line in report.verdict.cautions]
    for title, note, (columns, rows) in _sections(report):
        parts += ["", f"{title}. {note}" if note else title, _in_columns(columns, rows)]
    return "\n".join(parts)


def page(report: Report) -> Page:
    """As HTML."""
    from ultrafast.report import plots

    tones: dict[str, Tone] = {"A": "bad", "B": "good"}
    facts = {name: value for name, value in _facts(report).items() if value}
    made = Page(f"A/B of a workflow: {report.analysis.a.asked} against {report.analysis.b.asked}", facts)
    made.verdict(report.verdict.text, tones.get(report.verdict.take, "neutral"))
    for line in report.verdict.sure:
        made.text(line)
    for line in report.verdict.cautions:
        made.text(f"Mind: {line}")
    for title, note, (columns, rows) in _sections(report):
        made.section(title).table(columns, rows, note or None)
        if title == "Deadlines" and report.analysis.pairs:
            made.figure(
                plots.distribution({f"{k}": v for k, v in report.times.items()}, x="seconds until right", log_x=True),
                "Share of tasks that were right within so many seconds; what was not right never is.",
            )
    return made


def _facts(report: Report) -> dict[str, str]:
    setup, analysis = report.setup, report.analysis
    return {
        "Workflow": setup.workflow,
        "A": f"{analysis.a.asked} at {setup.arms['A'].url}",
        "B": f"{analysis.b.asked} at {setup.arms['B'].url}",
        "Pairs": f"{analysis.pairs} of {analysis.planned} planned, and {analysis.floor.ratio.n} of A with itself",
        "Pairs at once": str(setup.concurrency),
        "Prefix caches": "; ".join(f"{name} {_caches(arm)}" for name, arm in setup.arms.items()),
        "Right means": f"status 0 of {setup.check}" if setup.check else "the workflow says so, or ends well",
        "Money in": "multiples of what a million tokens of tier default cost" if setup.unit == RELATIVE else "",
    }


def _sections(report: Report) -> list[tuple[str, str, Table]]:
    analysis = report.analysis
    found = [
        ("The two arms", _setting(report), _arms(analysis)),
        ("Time", "", _time(analysis)),
        ("Where the time went", "Seconds a task, and the share of all.", _split(analysis.a, analysis.b)),
        ("What a faster tier can give", "", _reach(analysis)),
        ("Money", "", _money(report)),
        ("Deadlines", "Share of tasks right within so long.", _deadlines(report)),
    ]
    if report.outcomes is not None:
        found.append(("Outcomes that the workflow wrote down", "They decide nothing here.", report.outcomes))
    return found


def _caches(arm: ArmSetup) -> str:
    return "empty at the start of each run" if arm.cold else "as earlier runs left them"


def _setting(report: Report) -> str:
    analysis = report.analysis
    return (
        f"{analysis.pairs} pairs, {report.setup.concurrency} at once, random order, "
        f"{percent(analysis.a.split.output_share)} of A's time in output"
    )


def _arms(analysis: Analysis) -> Table:
    def row(name: str, of: Any) -> list[str]:
        return [name, of(analysis.a), of(analysis.b)]

    return ["", "A", "B"], [
        row("asked", lambda s: s.asked),
        row("calls by tier that served", lambda s: ", ".join(f"{n} {tier}" for tier, n in s.served.items()) or "none"),
        row("right", lambda s: f"{s.successes} of {s.runs}: {describe(s.success, scale=100, unit='%')}"),
        row("stopped by the limit, failed", lambda s: f"{s.timeouts}, {s.failures}"),
        row("calls, of which failed", lambda s: f"{s.calls}, {s.failed_calls}"),
        row("median time of a task", lambda s: describe(s.wall, unit="s")),
        row("first token after", lambda s: seconds(s.first_token_s)),
        row("output, tokens a second", lambda s: number(s.output_speed)),
        row("tokens in, cached, out", lambda s: f"{s.prompt_tokens:,}, {s.cached_tokens:,}, {s.output_tokens:,}"),
        row("cost of all tasks", lambda s: amount(s.cost, analysis.unit)),
        row("cost of a success", lambda s: amount(s.cost_per_success, analysis.unit)),
    ]


def _time(analysis: Analysis) -> Table:
    time, floor = analysis.time, analysis.floor
    rows = [
        ("a task, typically (geometric mean)", factor(time.typical)),
        ("all tasks together", factor(time.overall)),
        ("half of the tasks by more than", factor(time.middle)),
        ("a task, at whatever look (95 %)", f"{number(time.always[0])} to {number(time.always[1])} times"),
        ("A against A (should be 1)", factor(floor.ratio) if floor.ratio.n else "not measured"),
        ("second run of a pair against the first, in time", factor(analysis.order)),
        ("spread of log-ratios, A/B and A/A", f"{number(time.spread)} and {number(floor.spread)}"),
        ("right in one run only, A/B and A/A", _disagree(analysis)),
    ]
    return ["B is faster", "by"], rows


def _disagree(analysis: Analysis) -> str:
    success = analysis.success
    share = (success.only_a + success.only_b) / success.n if success.n else math.nan
    return f"{percent(share)} and {percent(analysis.floor.disagree.value)}; McNemar p = {number(success.p_value)}"


def _split(a: ArmSummary, b: ArmSummary) -> Table:
    def cell(arm: ArmSummary, part: str) -> str:
        spent, whole = getattr(arm.split, part), arm.split.total
        return f"{spent / arm.runs:.3g} s, {percent(spent / whole)}" if arm.runs and whole else "–"

    names = {
        "output": "model output",
        "waiting": "wait for the first token",
        "failed": "failed calls",
        "between": "between calls: tools, harness",
        "ends": "before the first call, after the last",
    }
    return ["", "A", "B"], [[words, cell(a, part), cell(b, part)] for part, words in names.items()]


def _reach(analysis: Analysis) -> Table:
    reach = analysis.reach
    return ["", "times"], [
        ("B's output speed over A's", number(reach.speed_ratio)),
        ("speed-up of all tasks that this predicts (Amdahl)", number(reach.predicted)),
        ("speed-up observed", factor(analysis.time.overall)),
        ("B's output tokens over A's", number(reach.tokens_ratio)),
        ("the most that faster output can give over A", number(reach.bound)),
        ("the most that it can still give over B", number(reach.left)),
    ]


def _money(report: Report) -> Table:
    found, unit = report.analysis.money, report.analysis.unit
    rows = [
        ("B costs more, a task", _range(found.extra, unit)),
        ("B saves, a task", describe(found.saved_s, unit="s")),
        ("B pays where an hour of waiting is worth", _range(found.an_hour, unit)),
        ("and a second", amount(found.an_hour.value / 3600, unit)),
    ]
    return ["", ""], rows


def _range(estimate: Estimate, unit: str) -> str:
    if math.isnan(estimate.value):
        return "unknown: no prices, or answers without token counts"
    return amount_range(estimate, unit)


def _deadlines(report: Report) -> Table:
    rows = [
        (seconds(at), describe(a, scale=100, unit="%"), describe(b, scale=100, unit="%")) for at, a, b in report.curve
    ]
    return ["within", "A", "B"], rows


def _until_right(pair: Pair, side: int) -> float:
    run = pair.sides[side]
    return run.wall_s if run.success else math.inf


def _curve(times: Mapping[str, Sequence[float]]) -> list[tuple[float, Estimate, Estimate]]:
    ended = sorted(t for values in times.values() for t in values if math.isfinite(t))
    if not ended:
        return []
    deadlines = sorted({float(f"{t:.2g}") for t in np.quantile(ended, [0.1, 0.25, 0.5, 0.75, 0.95])})
    shares = [[proportion(sum(t <= at for t in times[arm]), len(times[arm])) for arm in "AB"] for at in deadlines]
    return [(at, a, b) for at, (a, b) in zip(deadlines, shares, strict=True)]


def _outcomes(pairs: Sequence[Pair]) -> Table | None:
    """Means of the numbers that both runs of some pair wrote down."""
    rows = [(name, describe(a), describe(b), describe(difference)) for name, a, b, difference in paired_outcomes(pairs)]
    return (["", "A", "B", "B less A"], rows) if rows else None


def _in_columns(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = [list(columns), *map(list, rows)] if any(columns) else [list(row) for row in rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    return "\n".join(
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in table
    )
