"""The results of a run as data: what the document, the table and the page are made from."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ultrafast.bench.load.columns import measured
from ultrafast.bench.load.runner import Measured, Run, Setup
from ultrafast.bench.load.selfcheck import BOUND_S, SHARE, Echo, Lag, doubts
from ultrafast.bench.load.slo import Slo
from ultrafast.bench.load.summary import Summary, summarise
from ultrafast.bench.statistics import Estimate

LOOP, SEND, ECHO = "reading what has come", "sending on time", "reading from an echo server"


@dataclass(frozen=True, slots=True)
class CellResult:
    """A cell's summary, and whether this client was quick enough for it.

    Attributes:
        doubts: why not (`selfcheck.doubts`).
    """

    summary: Summary
    lags: Mapping[str, Lag]
    doubts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that is reported; cells of which nothing was measured are left out."""

    cells: Sequence[CellResult]
    echo: Echo | None
    workers: int
    is_complete: bool
    slo: Slo | None

    @property
    def is_valid(self) -> bool:
        return not any(cell.doubts for cell in self.cells)


def results_of(setup: Setup, run: Run, slo: Slo | None) -> Results:
    """Sums a run up."""
    cells = [
        _cell_result(summarise(cell, of.stretches, setup.endpoints[cell.tier].price, slo), of, run.echo)
        for cell, of in zip(setup.cells, run.cells, strict=True)
        if of.stretches
    ]
    return Results(cells, run.echo, run.workers, run.is_complete, slo)


def _cell_result(summary: Summary, of: Measured, echo: Echo | None) -> CellResult:
    lags = {LOOP: Lag.of(of.loop_lags_s), SEND: Lag.of(of.send_lags_s)}
    if echo is not None:
        lags[ECHO] = echo.delay
    return CellResult(summary, lags, doubts(lags, _figures(summary)))


def _figures(summary: Summary) -> dict[str, Lag]:
    """The times that a late client spoils first: of calls that ended."""
    names = {"time to first token": "ttft_s", "whole calls": "e2e_s"}
    return {
        name: Lag.of([value for value in measured(summary.columns[column]) if math.isfinite(value)])
        for name, column in names.items()
    }


def to_json(results: Results) -> dict[str, Any]:
    """The part ``results`` of the document."""
    return {
        "cells": [_cell_json(cell) for cell in results.cells],
        "self_check": {
            "valid": results.is_valid,
            "share_allowed": SHARE,
            "bound_s": BOUND_S,
            "echo": None if results.echo is None else asdict(results.echo),
            "workers": results.workers,
        },
        "slo": None if results.slo is None else dict(results.slo.bounds),
        "complete": results.is_complete,
    }


def _cell_json(result: CellResult) -> dict[str, Any]:
    summary = result.summary
    cell = summary.cell
    return {
        "tier": cell.tier,
        "prompt_tokens": cell.prompt_tokens,
        "output_tokens": cell.output_tokens,
        "load": cell.load.name,
        "calls": summary.calls,
        "cancelled": summary.cancelled,
        "outcomes": summary.outcomes,
        "errors": summary.errors,
        "tiers_served": summary.tiers_served,
        "served_by_another_tier": summary.downgraded,
        "token_counts_from": summary.counted,
        "wall_s": summary.wall_s,
        "segments": summary.segments,
        "mean_in_flight": summary.held,
        "output_tokens_per_s": _estimate(summary.tokens_per_s),
        "calls_per_s": _estimate(summary.calls_per_s),
        "decode_share": _estimate(summary.decode_share),
        "goodput": summary.goodput and _estimate(summary.goodput),
        "draft_acceptance": summary.acceptance and _estimate(summary.acceptance),
        "cost": summary.cost and asdict(summary.cost),
        "quantiles": {
            figure: {
                name: {"needs_calls": summary.missing(figure, name)} if of is None else _estimate(of)
                for name, of in by_name.items()
            }
            for figure, by_name in summary.quantiles.items()
        },
        "client_lag": {what: asdict(lag) for what, lag in result.lags.items()},
        "doubts": result.doubts,
        "columns": summary.columns,
        "counts": summary.counts,
    }


def _estimate(of: Estimate) -> dict[str, float]:
    return {"value": of.value, "low": of.low, "high": of.high, "n": of.n}


def to_csv(results: Results) -> str:
    """One line a cell and figure. Quantiles that too few calls tell are empty; ``inf`` is what never ended."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        ["tier", "prompt_tokens", "output_tokens", "load", "calls", "figure"]
        + [f"{name}{end}" for name in ("median", "p95", "p99") for end in ("", "_low", "_high")]
        + ["valid"]
    )
    for result in results.cells:
        cell = result.summary.cell
        head = [cell.tier or "", cell.prompt_tokens, cell.output_tokens, cell.load.name, result.summary.calls]
        for figure, by_name in result.summary.quantiles.items():
            values = [value for of in by_name.values() for value in _row(of)]
            writer.writerow([*head, figure, *values, "no" if result.doubts else "yes"])
    return file.getvalue()


def _row(of: Estimate | None) -> Iterator[float | str]:
    yield from ("", "", "") if of is None else (of.value, of.low, of.high)
