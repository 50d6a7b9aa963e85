"""The results as a page with plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ultrafast.bench.load.arrivals import ClosedLoop, OpenLoop
from ultrafast.bench.load.columns import SPEED, measured
from ultrafast.bench.load.results import CellResult, Results
from ultrafast.bench.load.summary import Summary
from ultrafast.bench.load.words import COLUMNS, NOTE, OVERVIEW, alarms, facts, overview, rows, self_check
from ultrafast.bench.statistics import median
from ultrafast.report import plots
from ultrafast.report.page import Page
from ultrafast.report.plots import Line

_PLOTTED = {SPEED: "output speed, tokens/s", "ttft_s": "time to first token, s"}


def page_of(results: Results, document: Mapping[str, Any]) -> Page:
    """One page, most important things first.

    Args:
        document: of the same run (`ultrafast.bench.records.document`).
    """
    page = Page("Speed of an endpoint", _facts(document))
    _verdict(page, results)
    page.section("All cells")
    page.table(OVERVIEW, overview(results), NOTE)
    page.figure(_bars(results, SPEED), "Median output speed of a call, with 95 % intervals.")
    page.figure(_bars(results, "ttft_s"), "Median time to first token in seconds, with 95 % intervals.")
    for by, axis in ((_in_flight, "calls in flight"), (_rate, "calls a second")):
        _over_load(page, results, by, axis)
    for name, group in _groups(results).items():
        page.section(name)
        for result in group:
            _cell(page, result, results)
        for column in (SPEED, "ttft_s"):
            _distribution(page, group, column)
    page.section("The client")
    for sentence in self_check(results):
        page.text(sentence)
    return page


def _facts(document: Mapping[str, Any]) -> dict[str, str]:
    setup, machine = document["setup"], document["machine"]
    return {
        "Endpoint": setup["url"],
        "Model": setup["model"],
        "API": setup["api"],
        "Text": setup["category"],
        "Measured": document["made_at"],
        "From": f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}",
    }


def _verdict(page: Page, results: Results) -> None:
    warnings = [f"{result.summary.cell.name}: {alarm}" for result in results.cells for alarm in alarms(result)]
    for warning in warnings:
        page.verdict(warning, "bad")
    if not results.is_complete:
        page.verdict("Interrupted: this is what was done by then.")
    if not warnings:
        page.verdict(
            "Every call was answered in full by the tier it asked for, and the client was quick enough.", "good"
        )


def _groups(results: Results) -> dict[str, list[CellResult]]:
    """Cells that differ in their tier alone."""
    groups: dict[str, list[CellResult]] = {}
    for result in results.cells:
        groups.setdefault(result.summary.cell.name_beside_tier, []).append(result)
    return groups


def _cell(page: Page, result: CellResult, results: Results) -> None:
    for sentence in (*alarms(result), *facts(result.summary, results.slo)):
        page.text(sentence)
    page.table((_tier(result), *COLUMNS[1:]), rows(result.summary))


def _distribution(page: Page, group: Sequence[CellResult], column: str) -> None:
    samples = {_tier(result): measured(result.summary.columns[column]) for result in group}
    page.figure(
        plots.distribution(samples, x=_PLOTTED[column], log_x=column != SPEED and _wide(samples)),
        "Share of calls at or below each value. Calls that failed keep a curve below 100 %.",
    )


def _bars(results: Results, column: str) -> str:
    groups = {
        name: {_tier(result): median(measured(result.summary.columns[column])) for result in group}
        for name, group in _groups(results).items()
    }
    return plots.bars(groups, x=_PLOTTED[column])


def _over_load(page: Page, results: Results, by: Any, axis: str) -> None:
    """Speed and throughput over the load, where several loads were measured."""
    same_lengths = len({result.summary.cell.lengths for result in results.cells}) == 1
    curves: dict[str, list[Summary]] = {}
    for result in results.cells:
        if by(result.summary) is not None:
            name = _tier(result) if same_lengths else f"{_tier(result)} · {result.summary.cell.lengths}"
            curves.setdefault(name, []).append(result.summary)
    if max(map(len, curves.values()), default=0) < 2:
        return
    page.section(f"Over {axis}")
    for figure, name in (("speed", "output speed of a call, tokens/s"), ("all", "output of all calls, tokens/s")):
        lines = [_line(curve, sorted(cells, key=by), by, figure) for curve, cells in curves.items()]
        page.figure(plots.lines(lines, x=axis, y=name, log_x=True), f"{name.capitalize()}, with 95 % intervals.")


def _line(name: str, cells: Sequence[Summary], by: Any, figure: str) -> Line:
    estimates = [median(measured(cell.columns[SPEED])) if figure == "speed" else cell.tokens_per_s for cell in cells]
    return Line(
        name,
        [by(cell) for cell in cells],
        [estimate.value for estimate in estimates],
        [estimate.low if estimate.is_bounded else estimate.value for estimate in estimates],
        [estimate.high if estimate.is_bounded else estimate.value for estimate in estimates],
    )


def _in_flight(summary: Summary) -> float | None:
    load = summary.cell.load
    return load.in_flight if isinstance(load, ClosedLoop) else None


def _rate(summary: Summary) -> float | None:
    load = summary.cell.load
    return load.rate if isinstance(load, OpenLoop) else None


def _tier(result: CellResult) -> str:
    return result.summary.cell.tier_name


def _wide(samples: Mapping[str, Sequence[float]]) -> bool:
    finite = [value for values in samples.values() for value in values if math.isfinite(value) and value > 0]
    return bool(finite) and max(finite) > 20 * min(finite)
