"""What came of an exam: by arm, and arms beside each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ultrafast.bench.client.call import Call
from ultrafast.bench.client.endpoint import Endpoint, Price
from ultrafast.bench.exam.calibration import calibration_error
from ultrafast.bench.exam.grading import Grade, grade
from ultrafast.bench.exam.journal import Answer, Journal
from ultrafast.bench.exam.judge import needs_judge
from ultrafast.bench.exam.questions import Question
from ultrafast.bench.exam.setup import Setup, arm_of
from ultrafast.bench.statistics import Estimate, bootstrap, mean, median, proportion

HLE_QUESTIONS = 2500


@dataclass(frozen=True, slots=True)
class Row:
    """One question in one arm: what was answered, and what it is worth."""

    question: Question
    answer: Answer
    grade: Grade

    @property
    def call(self) -> Call:
        return self.answer.call

    @property
    def seconds(self) -> float:
        """From the first attempt to the end, whatever came of it."""
        return self.call.e2e_s or 0.0

    @property
    def decode_s(self) -> float:
        """Seconds in which tokens were made, as the server says, else from first to last token at the client."""
        if self.call.server.decode_s is not None:
            return self.call.server.decode_s
        if self.call.first_token_s is None or self.call.last_token_s is None:
            return 0.0
        return self.call.last_token_s - self.call.first_token_s


@dataclass(frozen=True, slots=True)
class Arm:
    """One tier. Counts of tokens are ``None`` where no answer states them; sums leave out answers that do not.

    Attributes:
        wall_s: of the whole run's wall clock, the share that fell to this arm's requests.
        request_s: sum of its request times.
        held: requests of all arms in flight, on average.
        outcomes: how calls ended.
        lost: calls under way when a session ended, which were asked again if they are answered at all.
        cut: answers that ended at the limit on tokens.
        accuracy: of what is graded; calls that failed are wrong.
        calibration_n: answers with a grade and a stated confidence.
        missing: judgements that did not come, counted as wrong.
        decode_share: of request time.
        decode_stated: whether the server says all of it; else it is estimated at the client.
        projected_s: computed: 2,500 such questions at the concurrency held.
        cost: in US dollars; in tokens of the default tier where `cost_is_relative`.
    """

    name: str
    questions: int
    wall_s: float
    request_s: float
    held: float
    outcomes: Mapping[str, int]
    retried: int
    lost: int
    cut: int
    tiers_served: Mapping[str, int]
    accuracy: Estimate
    accuracy_by_kind: Mapping[str, Estimate]
    ungraded: int
    missing: int
    calibration_error: float
    calibration_n: int
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cost: float | None
    cost_is_relative: bool
    questions_per_hour: float
    seconds: Estimate
    median_s: Estimate
    first_token_s: Estimate
    speed: Estimate
    decode_share: float
    decode_stated: bool
    projected_s: Estimate


@dataclass(frozen=True, slots=True)
class Results:
    """A run.

    Attributes:
        wall_s: active time of all sessions.
        session_s: of each.
        complete: every question is answered in every arm.
        judge: who judged exact answers and tasks; ``None``: exact answers are compared here.
    """

    arms: Sequence[Arm]
    wall_s: float
    session_s: Sequence[float]
    complete: bool
    rows: Mapping[str, Sequence[Row]]
    judge: str | None = None


def results_of(setup: Setup, journal: Journal, judge: str | None = None) -> Results:
    """
    Args:
        judge: whose judgements grade what needs a judge (`judge.name_of`); ``None``: graded here.
    """
    rows = {arm_of(endpoint): _rows(setup, journal, arm_of(endpoint), judge) for endpoint in setup.endpoints}
    everything = [row for arm in rows.values() for row in arm]
    spans = [_span(everything, session) for session in range(1, journal.sessions + 1)]
    wall_s, request_s = sum(spans), sum(row.seconds for row in everything)
    held = request_s / wall_s if wall_s else math.nan
    arms = [_arm(endpoint, rows[arm_of(endpoint)], held, journal.lost) for endpoint in setup.endpoints]
    complete = len(everything) == len(setup.questions.questions) * len(setup.endpoints)
    return Results(arms, wall_s, spans, complete, rows, judge)


def _rows(setup: Setup, journal: Journal, arm: str, judge: str | None) -> list[Row]:
    judged = {(one.arm, one.question): one for one in journal.judgements if one.judge == judge}
    rows = []
    for question in setup.questions.questions:
        if (answer := journal.answers.get((arm, question.id))) is None:
            continue
        graded = grade(question, answer.call.text)
        if not answer.call.is_ok:
            graded = Grade(False, None, None, graded.by)
        elif judge is not None and needs_judge(question):
            one = judged.get((arm, question.id))
            if one is not None:
                graded = Grade(one.correct, one.answer, one.confidence, "judge")
            else:
                graded = Grade(False, graded.answer, graded.confidence, "missing")
        rows.append(Row(question, answer, graded))
    return rows


def _span(rows: Sequence[Row], session: int) -> float:
    """Seconds from the first request of a session to its last answer: a kill hides what came after that."""
    calls = [row.call for row in rows if row.answer.session == session and row.call.done_s is not None]
    if not calls:
        return 0.0
    return max(call.done_s or 0.0 for call in calls) - min(call.intended_s for call in calls)


def _arm(endpoint: Endpoint, rows: Sequence[Row], held: float, lost: Mapping[str, int]) -> Arm:
    graded = [row for row in rows if row.grade.correct is not None]
    confident = [row for row in graded if row.grade.confidence is not None]
    request_s, fine = sum(row.seconds for row in rows), [row for row in rows if row.call.is_ok]
    wall_s = request_s / held if rows else 0.0
    seconds = bootstrap(_mean, [row.seconds for row in rows]) if rows else mean([])
    cost, is_relative = _cost(endpoint.price, [row.call for row in rows])
    scale = HLE_QUESTIONS / held
    kinds = sorted({row.question.kind for row in graded})
    return Arm(
        name=arm_of(endpoint),
        questions=len(rows),
        wall_s=wall_s,
        request_s=request_s,
        held=held,
        outcomes=Counter(row.call.outcome.value for row in rows),
        retried=sum(row.answer.attempts > 1 for row in rows),
        lost=lost.get(arm_of(endpoint), 0),
        cut=sum(row.call.finish_reason in ("length", "max_output_tokens", "incomplete") for row in rows),
        tiers_served=Counter(row.call.tier_served or "not said" for row in fine),
        accuracy=_accuracy(graded),
        accuracy_by_kind={kind: _accuracy([r for r in graded if r.question.kind == kind]) for kind in kinds},
        ungraded=len(rows) - len(graded),
        missing=sum(row.grade.by == "missing" for row in rows),
        calibration_error=calibration_error(
            [row.grade.confidence or 0.0 for row in confident], [bool(row.grade.correct) for row in confident]
        ),
        calibration_n=len(confident),
        input_tokens=_total([row.call.prompt_tokens for row in rows]),
        cached_tokens=_total([row.call.cached_tokens for row in rows]),
        output_tokens=_total([row.call.output_tokens for row in rows]),
        reasoning_tokens=_total([row.call.reasoning_tokens for row in rows]),
        cost=cost,
        cost_is_relative=is_relative,
        questions_per_hour=3600 * len(rows) / wall_s if wall_s else math.nan,
        seconds=seconds,
        median_s=median([row.seconds if row.call.is_ok else math.inf for row in rows]),
        first_token_s=median([row.call.ttft_s for row in fine if row.call.ttft_s is not None]),
        speed=median([row.answer.speed for row in fine if row.answer.speed is not None]),
        decode_share=sum(row.decode_s for row in rows) / request_s if request_s else math.nan,
        decode_stated=bool(fine) and all(row.call.server.decode_s is not None for row in fine),
        projected_s=Estimate(seconds.value * scale, seconds.low * scale, seconds.high * scale, seconds.n),
    )


def _accuracy(graded: Sequence[Row]) -> Estimate:
    return proportion(sum(bool(row.grade.correct) for row in graded), len(graded))


def _mean(column: NDArray[np.float64]) -> Any:
    return column.mean(axis=-1)


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _cost(price: Price | None, calls: Sequence[Call]) -> tuple[float | None, bool]:
    """What the calls cost whose tokens are known; relative prices give it in tokens of the default tier."""
    if price is None:
        return None, False
    cached_price = price.input if price.cached_input is None else price.cached_input
    total = 0.0
    for call in calls:
        cached = call.cached_tokens or 0
        total += ((call.prompt_tokens or 0) - cached) * price.input + cached * cached_price
        total += (call.output_tokens or 0) * price.output
    return (total if price.is_relative else total / 1e6), price.is_relative
