"""The results of an exam as a page with plots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ultrafast.bench.exam import about, words
from ultrafast.bench.exam.report import comparisons_of
from ultrafast.bench.exam.results import Results
from ultrafast.bench.exam.setup import Setup
from ultrafast.report import plots
from ultrafast.report.page import Page


def page_of(setup: Setup, results: Results, document: Mapping[str, Any]) -> Page:
    """One page, most important things first.

    Args:
        document: of the same run (`ultrafast.bench.records.document`).
    """
    machine = document["machine"]
    facts = {
        **about.facts_of(setup),
        "Measured": document["made_at"],
        "From": f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}",
    }
    page = Page("A question set, answered against the clock", facts)
    comparisons = comparisons_of(results)
    for comparison in comparisons:
        page.verdict(next(words.sentences_of(comparison, results)))
    for note in about.notes_of(setup):
        page.verdict(note)
    if warnings := " ".join(words.warnings_of(results)):
        page.verdict(warnings, "bad")
    page.section("By tier" if comparisons else "In all")
    notes = (words.session_note(results), words.arms_note(results), words.grading_note(results))
    page.table(words.columns_of(results), words.table_of(results), " ".join(filter(None, notes)))
    _plots(page, results)
    for comparison in comparisons:
        page.section(f"{comparison.other} against {comparison.base}")
        for sentence in words.sentences_of(comparison, results):
            page.text(sentence)
    return page


def _plots(page: Page, results: Results) -> None:
    times = {
        arm.name: [row.seconds if row.call.is_ok else math.inf for row in results.rows[arm.name]]
        for arm in results.arms
    }
    page.figure(
        plots.distribution(times, x="seconds from question to answer", log_x=True),
        "What never ended keeps a curve below 100 %.",
    )
    accuracy = {
        kind: {arm.name: arm.accuracy_by_kind[kind] for arm in results.arms if kind in arm.accuracy_by_kind}
        for kind in dict.fromkeys(kind for arm in results.arms for kind in arm.accuracy_by_kind)
    }
    if accuracy:
        page.figure(plots.bars(accuracy, x="share of right answers"), "With 95 % intervals (Wilson).")
