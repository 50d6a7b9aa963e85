"""The measurement in words and cells, for terminal and page alike."""

from __future__ import annotations

from collections.abc import Callable

from ultrafast.bench.agent.results import Results
from ultrafast.bench.agent.speedup import Speedup
from ultrafast.bench.agent.split import Part
from ultrafast.bench.agent.summary import Summary
from ultrafast.bench.statistics import describe, describe_seconds

_NONE = "–"


def about(results: Results) -> str:
    """What was measured, in a sentence."""
    settings, model = results.settings, results.arms[0].endpoint.model
    what = f"A replay of {results.num_recorded} requests"
    if not results.num_recorded:
        tools = f", tools that take {settings.tool_s:g} s each" if settings.tool_s else ""
        notes = f"notes of up to {settings.step_tokens} tokens" if settings.step_tokens else "no notes"
        what = f"A task of {settings.num_steps} steps, {notes}{tools}"
    plural = "s" * (results.rounds > 1)
    return f"{what}: {model}, {results.rounds} round{plural}, arms in random order, one request at a time."


def cells(results: Results) -> list[list[str]]:
    """Rows of a table: a name, and a cell for each arm."""
    rows: list[tuple[str, Callable[[Summary], str]]] = [
        ("tasks completed", lambda arm: f"{arm.num_complete} of {arm.num_runs}"),
        ("wall time", lambda arm: describe_seconds(arm.wall)),
        *((f"  {part}", _part(part)) for part in Part if any(arm.parts[part] for arm in results.summaries)),
        ("time to first token, median", lambda arm: describe_seconds(arm.first_token)),
        ("output tokens", lambda arm: _number(arm.output_tokens)),
        ("output tokens/s while writing", lambda arm: _number(arm.output_speed, 1)),
        ("prompt tokens", lambda arm: _number(arm.prompt_tokens)),
        ("  of them cached", lambda arm: _percent(arm.cached)),
        ("drafted tokens accepted", lambda arm: _percent(arm.accepted)),
        ("cost", lambda arm: _NONE if arm.cost is None else f"{arm.cost:.6f}"),
        ("served as", _served),
    ]
    if not results.num_recorded:
        rows[1:1] = [("steps done by the model", lambda arm: f"{arm.num_by_model} of {arm.num_steps}")]
        if any(arm.num_retries for arm in results.summaries):
            rows[2:2] = [("second attempts", lambda arm: f"{arm.num_retries}, {arm.retry_s:.2f} s a task")]
    return [[name, *(cell(arm) for arm in results.summaries)] for name, cell in rows]


def sentences(results: Results) -> list[str]:
    """What the arms gain over the first, and what explains it."""
    return [sentence for speedup in results.speedups for sentence in _sentences(speedup)]


def notes(results: Results) -> list[str]:
    """What a reader must know to believe the figures."""
    told = [
        "Seconds are means of the tasks that came to their end; in brackets stand 95 % intervals. Each conversation "
        "has caches of its own.",
    ]
    if not all(arm.states_times for arm in results.summaries if arm.num_complete):
        told.append(
            "Where a server does not state its own times, network and server are not separable: both are in "
            f"“{Part.FIRST_TOKEN}” (queue, prefill) and “{Part.STREAM}” (decode)."
        )
    told += [
        f"{arm.arm}: {arm.num_in_one_piece} answers came in one piece, so that the time to write them is in "
        f"“{Part.FIRST_TOKEN}”, and the output speed is not that of the model."
        for arm in results.summaries
        if arm.num_in_one_piece
    ]
    if any(arm.cost is not None for arm in results.summaries):
        told.append(
            "Costs are in US dollars, at the prices given; without these, at what an Ultrafast server states for a "
            "tier, taking a million tokens of its default tier for one dollar."
        )
    for arm in results.summaries:
        told += [f"{arm.arm}: a task ended at {failure}" for failure in dict.fromkeys(arm.failures)]
    if any(arm.num_by_model < arm.num_steps for arm in results.summaries) and not results.num_recorded:
        told.append("Steps marked ! were not done by the model itself.")
    return told


def _sentences(speedup: Speedup) -> list[str]:
    told = (
        f"{speedup.arm} is {describe(speedup.observed)} times as fast as {speedup.base}, "
        f"over {speedup.observed.n} pair{'s' * (speedup.observed.n > 1)}."
    )
    lines = [told]
    if speedup.predicted is None or speedup.output is None:
        lines.append("  What its output speed predicts is not known: the server states no token counts.")
    else:
        lines.append(
            f"  {speedup.share:.0%} of the time of {speedup.base} is model output, which is {speedup.output:.2f} times "
            f"as fast here: that predicts {describe(speedup.predicted)}. No output speed could give more than "
            f"{speedup.limit:.2f}."
        )
    saved = sorted(((part, seconds) for part, seconds in speedup.saved.items() if abs(seconds) >= 0.005), key=_size)
    if saved:
        parts = ", ".join(f"{part} {seconds:+.2f}" for part, seconds in saved)
        lines.append(f"  Seconds saved a task: {sum(speedup.saved.values()):+.2f} ({parts}).")
    if speedup.more_tokens is not None and abs(speedup.more_tokens) >= 0.01:
        lines.append(f"  Output tokens: {speedup.more_tokens:+.0%}.")
    return lines


def _size(entry: tuple[Part, float]) -> float:
    return -abs(entry[1])


def _part(part: Part) -> Callable[[Summary], str]:
    def cell(arm: Summary) -> str:
        return f"{arm.parts[part]:.2f} s {arm.parts[part] / arm.wall.value:4.0%}" if arm.num_complete else _NONE

    return cell


def _served(arm: Summary) -> str:
    if len(arm.tiers_served) == 1:
        return next(iter(arm.tiers_served))
    return ", ".join(f"{tier} {count}" for tier, count in arm.tiers_served.items())


def _number(value: float | None, places: int = 0) -> str:
    return _NONE if value is None else f"{value:,.{places}f}"


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{value:.0%}"
