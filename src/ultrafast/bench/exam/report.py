"""The results of an exam as text for a terminal, as a document, and as one JSON object a question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ultrafast.bench.exam import about, words
from ultrafast.bench.exam.comparison import Comparison, compare
from ultrafast.bench.exam.results import Results, Row
from ultrafast.bench.exam.setup import Setup
from ultrafast.bench.records import plain


def comparisons_of(results: Results) -> list[Comparison]:
    """Each arm against the first."""
    first, *others = [arm.name for arm in results.arms]
    return [compare((first, other), results.rows[first], results.rows[other]) for other in others]


def text_of(setup: Setup, results: Results) -> str:
    """For a terminal."""
    lines = [f"{name}: {value}" for name, value in about.facts_of(setup).items()]
    lines += [*about.notes_of(setup), ""]
    rows = [list(words.columns_of(results)), *words.table_of(results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for comparison in comparisons_of(results):
        lines += ["", *words.sentences_of(comparison, results)]
    notes = [words.session_note(results), words.arms_note(results), words.grading_note(results)]
    lines += ["", *filter(None, notes), *words.warnings_of(results)]
    return "\n".join(lines)


def to_json(setup: Setup, results: Results) -> dict[str, Any]:
    """The results for a document: everything but the questions one by one."""
    return {
        "wall_s": results.wall_s,
        "session_s": results.session_s,
        "complete": results.complete,
        "left_out_for_images": setup.questions.left_out,
        "notes": [*about.notes_of(setup)],
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
