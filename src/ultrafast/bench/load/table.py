"""The results for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from ultrafast.bench.load.results import Results
from ultrafast.bench.load.words import COLUMNS, NOTE, OVERVIEW, alarms, facts, overview, rows, self_check

_WIDTH = 120


def text_of(results: Results) -> str:
    """Cells one after another, then all of them in one table, and how quick the client was."""
    return "\n".join(_lines(results))


def _lines(results: Results) -> Iterator[str]:
    for result in results.cells:
        yield result.summary.cell.name
        for sentence in (*alarms(result), *facts(result.summary, results.slo)):
            yield from wrap(sentence, _WIDTH, initial_indent="  ", subsequent_indent="  ")
        yield from (f"  {line}" for line in _aligned([COLUMNS, *rows(result.summary)]))
        yield ""
    if len(results.cells) > 1:
        yield "Medians of all cells"
        yield from (f"  {line}" for line in _aligned([OVERVIEW, *overview(results)]))
        yield ""
    yield from wrap(NOTE, _WIDTH)
    for sentence in self_check(results):
        yield from wrap(sentence, _WIDTH)
    if not results.is_complete:
        yield "Interrupted: this is what was done by then."


def _aligned(table: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    for row in table:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
