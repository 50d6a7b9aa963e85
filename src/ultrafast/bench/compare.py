"""Two runs of `ultrafast bench api` side by side: what became faster, what slower, and what cannot be told apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import msgspec
import numpy as np

from ultrafast.bench.records import number
from ultrafast.bench.statistics import (
    Estimate,
    bootstrap_apart,
    describe,
    describe_seconds,
    median,
    needed_for,
)
from ultrafast.errors import ConfigError
from ultrafast.report.page import Page

NAMES = {
    "ttft_s": "time to first token",
    "ttfat_s": "time to first answer token",
    "first_clause_s": "time to first clause",
    "e2e_s": "whole call",
    "output_speed": "output speed, tokens/s",
    "longest_gap_s": "longest gap",
}
"""How people call the columns of a cell; other columns keep the name that they have in the document."""


_Number = float | Literal["inf", "-inf"] | None


class Verdict(StrEnum):
    """What the interval of a ratio says."""

    FASTER = "faster"
    SLOWER = "slower"
    UNCLEAR = "no clear difference"
    TOO_FEW = "too few calls to tell"


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of one cell, in both runs: medians, and the second over the first."""

    column: str
    before: Estimate
    after: Estimate
    ratio: Estimate
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs.

    Attributes:
        cells: changes by cell, for the cells that both have.
        only_before, only_after: cells that the other run lacks.
        differences: what else differs between the runs, as ``name: first → second``.
        doubts: why a cell of either run is not sound.
    """

    cells: Mapping[str, Sequence[Change]]
    only_before: Sequence[str]
    only_after: Sequence[str]
    differences: Sequence[str]
    doubts: Sequence[str]

    def count(self, verdict: Verdict) -> int:
        return sum(change.verdict is verdict for changes in self.cells.values() for change in changes)


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> Comparison:
    """Cell by cell, from documents of kind ``api`` (`ultrafast.bench.records.read_document`).

    Calls of one run know nothing of those of the other, so they are resampled apart.

    Raises:
        ConfigError: a document has no cells of calls, or there is no cell that both have.
    """
    first, second = _cells(before, "first"), _cells(after, "second")
    common = [name for name in first if name in second]
    if not common:
        raise ConfigError(
            "the documents have no cell in common, so there is nothing to compare: "
            f"the first has {'; '.join(first) or 'none'}, the second {'; '.join(second) or 'none'}"
        )
    return Comparison(
        cells={name: list(_changes(first[name], second[name])) for name in common},
        only_before=[name for name in first if name not in second],
        only_after=[name for name in second if name not in first],
        differences=list(_differences(before, after)),
        doubts=[
            f"{name}, {which} run: {doubt}"
            for name in common
            for which, cells in (("first", first), ("second", second))
            for doubt in cells[name].doubts
        ],
    )


def text(comparison: Comparison) -> str:
    """For a terminal."""
    rows = {cell: list(map(_row, changes)) for cell, changes in comparison.cells.items()}
    widths = [max((len(row[i]) for cell in rows.values() for row in cell), default=0) for i in range(4)]
    parts = [_summary(comparison)]
    for cell, lines in rows.items():
        parts.append(f"\n{cell}")
        for name, before, after, ratio, verdict in lines:
            medians = f"{before:>{widths[1]}} → {after:>{widths[2]}}"
            parts.append(f"  {name:{widths[0]}}  {medians}  {ratio:>{widths[3]}}  {verdict}")
    if remarks := list(_remarks(comparison)):
        parts += ["", *remarks]
    return "\n".join(parts)


def add_to(page: Page, comparison: Comparison) -> None:
    """As parts of a page."""
    faster, slower = comparison.count(Verdict.FASTER), comparison.count(Verdict.SLOWER)
    page.verdict(_summary(comparison), "good" if faster > slower == 0 else "bad" if slower > faster == 0 else "neutral")
    for cell, changes in comparison.cells.items():
        page.section(cell)
        page.table(["median", "first run", "second run", "second / first", "verdict"], map(_row, changes))
    for remark in _remarks(comparison):
        page.text(remark)


@dataclass(frozen=True, slots=True)
class _Cell:
    """What a cell of the document has, as far as it is needed here."""

    tier: str | None
    prompt_tokens: Any
    output_tokens: Any
    load: Any
    columns: dict[str, list[_Number]]
    doubts: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        load = self.load if isinstance(self.load, str) else msgspec.json.encode(self.load).decode()
        lengths = f"{_count(self.prompt_tokens)} tokens in, {_count(self.output_tokens)} out"
        return f"{self.tier or 'no tier asked'} · {lengths} · {load}"


def _cells(document: Mapping[str, Any], which: str) -> dict[str, _Cell]:
    try:
        cells = msgspec.convert(document.get("results", {}).get("cells"), list[_Cell])
    except msgspec.ValidationError as error:
        raise ConfigError(f"the {which} document has no cells of calls: {error}") from None
    return {cell.name: cell for cell in cells}


def _changes(first: _Cell, second: _Cell) -> Iterator[Change]:
    for column in first.columns:
        before, after = (_measured(cell.columns.get(column, [])) for cell in (first, second))
        if not before and not after:
            continue
        ratio = bootstrap_apart(_ratio, before, after)
        verdict = _verdict(column, ratio, min(len(before), len(after)))
        yield Change(column, median(before), median(after), ratio, verdict)


def _ratio(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.median(after, axis=-1) / np.median(before, axis=-1)


def _measured(column: Sequence[_Number]) -> list[float]:
    return [value for value in map(number, column) if not math.isnan(value)]


def _verdict(column: str, ratio: Estimate, fewest: int) -> Verdict:
    if fewest < needed_for(0.5):  # two runs of 3 each lie apart by chance once in 10 times
        return Verdict.TOO_FEW
    if ratio.low <= 1 <= ratio.high:
        return Verdict.UNCLEAR
    more = ratio.low > 1
    return Verdict.FASTER if more == ("speed" in column) else Verdict.SLOWER


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for part in ("setup", "machine"):
        first, second = before.get(part), after.get(part)
        if not isinstance(first, dict) or not isinstance(second, dict):
            continue
        for name in sorted({*first, *second}):
            if first.get(name) != second.get(name):
                yield f"{name}: {_shown(first.get(name))} → {_shown(second.get(name))}"


def _summary(comparison: Comparison) -> str:
    counts = [f"{count} {verdict}" for verdict in Verdict if (count := comparison.count(verdict))]
    return f"The second run against the first, by medians: {', '.join(counts) or 'nothing measured in both'}."


def _remarks(comparison: Comparison) -> Iterator[str]:
    if comparison.doubts:
        yield f"Not sound: {'; '.join(comparison.doubts)}."
    told = sum(map(len, comparison.cells.values())) - comparison.count(Verdict.TOO_FEW)
    if told > 1:
        yield (
            f"Of {told} comparisons at 95 % confidence, {told * 0.05:.1f} are expected to show a difference by chance "
            "where there is none."
        )
    for which, cells in (("first", comparison.only_before), ("second", comparison.only_after)):
        if cells:
            yield f"Only in the {which} run: {'; '.join(cells)}."
    if comparison.differences:
        yield f"The runs also differ in {'; '.join(comparison.differences)}."


def _row(change: Change) -> tuple[str, str, str, str, str]:
    shown = describe_seconds if change.column.endswith("_s") else describe
    return (
        NAMES.get(change.column, change.column),
        shown(change.before),
        shown(change.after),
        describe(change.ratio),
        change.verdict.value,
    )


def _count(tokens: Any) -> str:
    return f"{tokens:,}" if isinstance(tokens, int | float) else str(tokens)


def _shown(value: Any) -> str:
    written = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return written if len(written) <= 60 else f"{written[:59]}…"
