"""Results in words and rows, for the table in a terminal and for the page alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ultrafast.bench.load.columns import CLAUSE_TOKENS, SPEED, measured
from ultrafast.bench.load.results import CellResult, Results
from ultrafast.bench.load.selfcheck import BOUND_S, SHARE
from ultrafast.bench.load.slo import Slo
from ultrafast.bench.load.summary import INTER_TOKEN, Summary
from ultrafast.bench.statistics import Estimate, describe, describe_seconds, median

NAMES = {
    SPEED: "output speed, tokens/s",
    INTER_TOKEN: "time a token after the first",
    "ttft_s": "time to first token",
    "ttfat_s": "time to first answer token",
    "first_clause_s": "time to first clause",
    "e2e_s": "whole call",
    "longest_gap_s": "longest gap between chunks",
}
COLUMNS = ("", "median (95 % interval)", "95 % of calls", "99 % of calls")
NOTE = (
    "All calls count: one that failed or timed out took for ever. Times start when the call was meant to start. "
    "95 % of calls stay within such a time, or reach such a speed. Output speed is tokens after the first chunk, over "
    f"the time from first to last chunk; a first clause ends with punctuation or after {CLAUSE_TOKENS} tokens."
)


def rows(summary: Summary) -> Iterator[tuple[str, str, str, str]]:
    """The figures of a cell, under `COLUMNS`."""
    for figure, by_name in summary.quantiles.items():
        shown = [_shown(summary, figure, name, of) for name, of in by_name.items()]
        yield NAMES[figure], shown[0], shown[1], shown[2]


def _shown(summary: Summary, figure: str, name: str, of: Estimate | None) -> str:
    if of is None:
        return f"needs {summary.missing(figure, name):,} more"
    return describe(of) if figure == SPEED else describe_seconds(of)


OVERVIEW = (
    "tier",
    "tokens",
    "load",
    "calls",
    "failed",
    "tokens/s a call",
    "first token",
    "whole call",
    "tokens/s in all",
)


def overview(results: Results) -> Iterator[tuple[str, ...]]:
    """A line a cell, under `OVERVIEW`; medians."""
    for result in results.cells:
        summary = result.summary
        yield (
            summary.cell.tier_name,
            summary.cell.lengths,
            summary.cell.load.name,
            f"{summary.calls:,}",
            f"{summary.calls - summary.outcomes.get('ok', 0):,}",
            describe(_median(summary, SPEED)),
            describe_seconds(_median(summary, "ttft_s")),
            describe_seconds(_median(summary, "e2e_s")),
            f"{summary.tokens_per_s.value:,.3g}",
        )


def _median(summary: Summary, column: str) -> Estimate:
    return median(measured(summary.columns[column]))


def facts(summary: Summary, slo: Slo | None) -> Iterator[str]:
    """What must stand beside the figures of a cell."""
    asked = summary.cell.output_tokens
    got = f"{_tokens(summary.mean_of('prompt_tokens'))} tokens in and {_tokens(summary.mean_of('output_tokens'))} out"
    wanted = "" if asked is None else f" ({summary.cell.prompt_tokens:,} and {asked:,} asked for)"
    yield (
        f"{summary.calls:,} calls in {summary.wall_s:.1f} s and {_plural(summary.segments, 'stretch', 'stretches')}, "
        f"{summary.held:.1f} in flight on average, {got} a call{wanted}; "
        f"{describe(summary.decode_share, scale=100, unit='%')} of their time between first and last token."
    )
    per_chunk = summary.mean_of("tokens_per_chunk")
    chunks = "" if math.isnan(per_chunk) else f", {per_chunk:.1f} tokens a chunk ({_counted(summary.counted)})"
    yield (
        f"All calls together: {describe(summary.tokens_per_s)} output tokens/s, "
        f"{describe(summary.calls_per_s)} calls/s{chunks}."
    )
    if summary.goodput is not None:
        per_s = summary.goodput.value * summary.calls / summary.wall_s
        share = describe(summary.goodput, scale=100, unit="%")
        yield f"Goodput: {share} of calls keep to {slo}: {per_s:.3g} calls/s."
    if (cached := summary.mean_of("cached_tokens")) > 0:
        yield f"From the server's prefix cache: {_tokens(cached)} tokens of a prompt."
    if (thought := summary.mean_of("reasoning_tokens")) > 0:
        yield f"Reasoning: {_tokens(thought)} of the output tokens of a call."
    if summary.acceptance is not None:
        yield f"Drafts accepted: {describe(summary.acceptance, scale=100, unit='%')} of their tokens."
    if summary.cost is not None:
        yield _cost(summary)


def alarms(result: CellResult) -> Iterator[str]:
    """What makes the figures of a cell something else than they seem."""
    summary = result.summary
    for doubt in result.doubts:
        yield f"INVALID, the client was too slow: {doubt}."
    if summary.downgraded:
        served = ", ".join(f"{count:,} by {tier}" for tier, count in sorted(summary.tiers_served.items()))
        yield (
            f"ANOTHER TIER: {summary.downgraded:,} of {summary.calls:,} calls that asked for {summary.cell.tier} were "
            f"served by another ({served})."
        )
    if failed := summary.calls - summary.outcomes.get("ok", 0):
        reasons = "; ".join(f"{count:,} × {error}" for error, count in list(summary.errors.items())[:3])
        yield f"FAILED: {failed:,} of {summary.calls:,} calls, which count as calls without end ({reasons})."
    short = summary.mean_of("output_tokens")
    if summary.cell.output_tokens and short < 0.9 * summary.cell.output_tokens:
        yield f"SHORT: answers end after {_tokens(short)} tokens, {summary.cell.output_tokens:,} were asked for."


def self_check(results: Results) -> Iterator[str]:
    """How quick the client was."""
    echo = results.echo
    if echo is not None:
        yield (
            f"Client: {_plural(results.workers, 'process', 'processes')}; against an echo server, "
            f"{echo.events_per_s:,.0f} events/s in {_plural(echo.streams, 'stream')} were read "
            f"{echo.delay.p50 * 1e3:.2f} ms (p99 {echo.delay.p99 * 1e3:.2f} ms) after they were written."
        )
    lags = [(what, lag) for cell in results.cells for what, lag in cell.lags.items() if lag.n]
    worst: dict[str, float] = {}
    for what, lag in lags:
        worst[what] = max(worst.get(what, 0.0), lag.p99)
    during = ", ".join(f"{what} {p99 * 1e3:.2f} ms" for what, p99 in worst.items() if "echo" not in what)
    yield (
        f"Its p99 lags during the run, in the worst cell: {during}. Allowed: {SHARE:.0%} of the time to first token "
        f"and of whole calls, median against median and p99 against p99, and {BOUND_S * 1e3:g} ms."
    )


def _cost(summary: Summary) -> str:
    assert summary.cost
    if summary.cost.is_relative:
        total, per_call = (f"{value * 1e6:,.0f}" for value in (summary.cost.total, summary.cost.per_call))
        return f"Cost: {per_call} a call, {total} in all, in tokens of the server's default tier."
    return f"Cost: ${summary.cost.per_call:.6f} a call, ${summary.cost.total:.4f} in all."


_SOURCES = {
    "chunks": "as the server counts them",
    "estimated": "estimated: the final count, spread over the text",
    "recounted": "recounted with a tokenizer of ours",
    "unknown": "not known",
}


def _counted(counted: Mapping[str, int]) -> str:
    return "; ".join(_SOURCES[source] for source in counted)


def _tokens(value: float) -> str:
    return "an unknown number of" if math.isnan(value) else f"{value:,.0f}"


def _plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
