"""The results of an exam as text for a terminal, a page, and one JSON object a question."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ultrafast.bench.exam import words
from ultrafast.bench.exam.comparison import Comparison, compare
from ultrafast.bench.exam.results import Results, Row
from ultrafast.bench.exam.setup import Setup
from ultrafast.bench.records import plain
from ultrafast.report import plots
from ultrafast.report.page import Page


def comparisons_of(results: Results) -> list[Comparison]:
    """Each arm against the first."""
    first, *others = [arm.name for arm in results.arms]
    return [compare((first, other), results.rows[first], results.rows[other]) for other in others]


def text_of(setup: Setup, results: Results) -> str:
    """For a terminal."""
    lines = [f"{name}: {value}" for name, value in words.facts_of(setup).items()]
    lines += [*words.notes_of(setup), ""]
    rows = [list(words.columns_of(results)), *words.table_of(results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for comparison in comparisons_of(results):
        lines += ["", *words.sentences_of(comparison, results)]
    lines += ["", words.session_note(results), words.arms_note(results), *words.warnings_of(results)]
    return "\n".join(lines).rstrip()


def page_of(setup: Setup, results: Results, document: Mapping[str, Any]) -> Page:
    """One page, most important things first.

    Args:
        document: of the same run (`ultrafast.bench.records.document`).
    """
    machine = document["machine"]
    facts = {
        **words.facts_of(setup),
        "Measured": document["made_at"],
        "From": f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}",
    }
    page = Page("A question set, answered against the clock", facts)
    for note in words.notes_of(setup):
        page.verdict(note)
    for warning in words.warnings_of(results):
        page.verdict(warning, "bad")
    comparisons = comparisons_of(results)
    for comparison in comparisons:
        page.verdict(next(words.sentences_of(comparison, results)))
    page.section("By tier" if comparisons else "In all")
    page.table(
        words.columns_of(results), words.table_of(results), f"{words.session_note(results)} {words.arms_note(results)}"
    )
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


def to_json(setup: Setup, results: Results) -> dict[str, Any]:
    """The results for a document: everything but the questions one by one."""
    return {
        "wall_s": results.wall_s,
        "session_s": results.session_s,
        "complete": results.complete,
        "left_out_for_images": setup.questions.left_out,
        "notes": [*words.notes_of(setup)],
        "warnings": [*words.warnings_of(results)],
        "arms": results.arms,
        "comparisons": comparisons_of(results),
    }


def lines_of(results: Results) -> Iterator[dict[str, Any]]:
    """One object a question and arm. Neither the question nor what is right is in it: sets ask not to be published."""
    for arm, rows in results.rows.items():
        for row in rows:
            yield {"arm": arm, **_line(row)}


def _line(row: Row) -> dict[str, Any]:
    call = row.call
    return {
        "question": row.question.id,
        "kind": row.question.kind,
        "subject": row.question.subject,
        "category": row.question.category,
        "outcome": call.outcome,
        "error": call.error,
        "correct": row.grade.correct,
        "graded_by": row.grade.by,
        "answer": row.grade.answer,
        "confidence": row.grade.confidence,
        "seconds": row.seconds,
        "first_token_s": call.ttft_s,
        "decode_s": row.decode_s,
        "tokens_per_s": row.answer.speed,
        "input_tokens": call.prompt_tokens,
        "cached_tokens": call.cached_tokens,
        "output_tokens": call.output_tokens,
        "reasoning_tokens": call.reasoning_tokens,
        "finish_reason": call.finish_reason,
        "tier_served": call.tier_served,
        "attempts": row.answer.attempts,
        "session": row.answer.session,
        "text": call.text,
    }


def json_lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """As a file has them."""
    return b"".join(msgspec.json.encode(plain(row)) + b"\n" for row in rows)
