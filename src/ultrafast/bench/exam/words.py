"""Results in words: the table of arms, and sentences on what they mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ultrafast.bench.exam.comparison import Comparison
from ultrafast.bench.exam.results import HLE_QUESTIONS, Arm, Results
from ultrafast.bench.statistics import describe, describe_seconds
from ultrafast.report.estimate import Estimate


def table_of(results: Results) -> list[list[str]]:
    """Rows of a table, whose first column names them; a column an arm."""
    columns = [list(_column(arm, results)) for arm in results.arms]
    names = list(dict.fromkeys(name for column in columns for name, _ in column))
    cells = [dict(column) for column in columns]
    return [[name, *(cell.get(name, "") for cell in cells)] for name in names]


def warnings_of(results: Results) -> Iterator[str]:
    """What puts the figures in doubt."""
    if not results.complete:
        yield "The run is not complete: these are the questions answered so far."
    for arm in results.arms:
        failed = arm.questions - arm.outcomes.get("ok", 0)
        if failed:
            yield f"{arm.name}: {failed} of {arm.questions} calls have no whole answer, and count as wrong."
        if arm.cut:
            yield f"{arm.name}: {arm.cut} of {arm.questions} answers ended at the limit on tokens (--max-tokens)."
        other = {tier: count for tier, count in arm.tiers_served.items() if tier not in (arm.name, "not said")}
        if other and arm.name not in ("auto", "no tier asked"):
            yield f"{arm.name}: served by another tier: {_counts(other)}."
        if arm.missing:
            yield f"{arm.name}: {arm.missing} judgements did not come, and count as wrong; the same command asks again."


def sentences_of(comparison: Comparison, results: Results) -> Iterator[str]:
    """What a comparison says, each with what it rests on."""
    base, other = comparison.base, comparison.other
    held = results.arms[0].held
    yield (
        f"{other} was {describe(comparison.ratio)} times as fast as {base} from question to answer, over the "
        f"{comparison.pairs} questions that both answered, {held:.3g} in flight."
    )
    if not math.isnan(comparison.speed_ratio.value):
        yield (
            f"It wrote tokens {describe(comparison.speed_ratio)} times as fast. {_share(comparison.decode_share)} of "
            f"the time of {base} went to decode, so this alone gives {comparison.predicted:.3g} times (Amdahl)."
        )
    yield (
        f"The rest, which is waiting for a slot, reading the prompt, network and client, took "
        f"{comparison.other_s[0]:.3g} s a question for {base} and {comparison.other_s[1]:.3g} s for {other}; "
        f"{other} wrote {describe(comparison.token_ratio)} times as many tokens."
    )
    if graded := comparison.both + comparison.only_base + comparison.only_other + comparison.neither:
        yield (
            f"Of {graded} graded questions both had {comparison.both} right, {base} alone {comparison.only_base}, "
            f"{other} alone {comparison.only_other}, neither {comparison.neither} (McNemar p = "
            f"{comparison.p_value:.2g}); accuracy differs by {describe(comparison.difference, 2, scale=100)} points."
        )
        yield "No significant difference does not mean the same quality: `ultrafast verify` tests for that."
    if comparison.unpaired:
        yield f"{comparison.unpaired} questions without two whole answers are left out of the ratios of time."


def grading_note(results: Results) -> str:
    """Who graded."""
    if not any(row.question.kind == "exactMatch" for rows in results.rows.values() for row in rows):
        return ""
    if results.judge:
        return f"Choices are graded by their letter, other answers judged by {results.judge}."
    return (
        "Choices are graded by their letter, exact answers by comparing numbers and text, which knows fewer ways to "
        "say the same than the judge of Humanity's Last Exam: --judge-url has a model judge them."
    )


def session_note(results: Results) -> str:
    """How the wall clock came about."""
    sessions = len(results.session_s)
    if sessions < 2:
        return "Wall time runs from the first request to the last answer."
    return (
        f"Wall time is the sum of {sessions} sessions, each from its first request to its last answer; "
        "the time between them does not count, nor does work that a kill threw away."
    )


def arms_note(results: Results) -> str:
    """What the wall time of one arm means."""
    if len(results.arms) < 2:
        return ""
    return (
        f"Both arms took turns, question by question: of the run's {duration(results.wall_s)} each has the share of "
        "its request times, and the later of two may find the prompt in a cache. To see the wall time of one tier with "
        "all requests in flight its own, run it alone."
    )


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if not math.isfinite(seconds):
        return "–" if math.isnan(seconds) else "never"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def _column(arm: Arm, results: Results) -> Iterator[tuple[str, str]]:
    yield "answered", f"{arm.questions}"
    if arm.accuracy.n:
        yield "accuracy", _percent(arm.accuracy)
    for kind, accuracy in arm.accuracy_by_kind.items():
        yield f"… {kind}", _percent(accuracy)
    if arm.ungraded:
        yield "not graded", f"{arm.ungraded}"
    if arm.accuracy.n:
        yield "calibration error", f"{_share(arm.calibration_error)} (n = {arm.calibration_n})"
    yield "wall time", duration(arm.wall_s)
    yield "request time, summed", duration(arm.request_s)
    yield "in flight, all arms", f"{arm.held:.2f}"
    yield "questions an hour", f"{arm.questions_per_hour:,.0f}"
    yield "a question, mean", describe_seconds(arm.seconds)
    yield "a question, median", describe_seconds(arm.median_s)
    yield "first token, median", describe_seconds(arm.first_token_s)
    yield "decode, tokens/s, median", describe(arm.speed)
    yield "time in decode", _share(arm.decode_share) + ("" if arm.decode_stated else ", estimated")
    yield "tokens in", _tokens(arm.input_tokens, arm.cached_tokens, "cached")
    yield "tokens out", _tokens(arm.output_tokens, arm.reasoning_tokens, "reasoning")
    yield "cost", _money(arm)
    yield "outcomes", _counts(arm.outcomes)
    if arm.retried or arm.lost:
        yield "tried again / lost in kills", f"{arm.retried} / {arm.lost}"
    yield "tiers that served", _counts(arm.tiers_served)
    yield f"{HLE_QUESTIONS:,} such questions, computed", _projected(arm.projected_s)


def _percent(share: Estimate) -> str:
    return f"{100 * share.value:.1f} % ({100 * share.low:.1f} to {100 * share.high:.1f}; n = {share.n})"


def _share(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.0f} %"


def _projected(seconds: Estimate) -> str:
    if not seconds.is_bounded:
        return duration(seconds.value)
    return f"{duration(seconds.value)} ({duration(seconds.low)} to {duration(seconds.high)})"


def _tokens(count: int | None, part: int | None, name: str) -> str:
    if count is None:
        return "not said"
    return f"{count:,}" + (f" ({part:,} {name})" if part else "")


def _money(arm: Arm) -> str:
    if arm.cost is None:
        return "no price known"
    return f"{arm.cost:,.0f} tokens of the default tier" if arm.cost_is_relative else f"${arm.cost:,.4g}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "–"


def columns_of(results: Results) -> Sequence[str]:
    """Headings of `table_of`."""
    return ["", *(arm.name for arm in results.arms)]
