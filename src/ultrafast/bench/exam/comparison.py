"""Two arms of an exam, question by question: how much faster in all, where the time goes, and how answers differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ultrafast.bench.exam.results import Row
from ultrafast.bench.statistics import Estimate, bootstrap

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm against the first one, over the questions that both answered; intervals resample questions.

    Attributes:
        pairs: questions that both answered, in time and without an error.
        unpaired: questions that only one of them answered so, or none: they are in no figure of time.
        ratio: request time of the base over that of the other: how many times as fast in all.
        speed_ratio: decode speed of the other over that of the base; ``nan`` where token counts are not known.
        token_ratio: output tokens of the other over those of the base.
        decode_share: of the base's request time, what went to decode.
        predicted: Amdahl's: what `speed_ratio` gives when decode alone gets faster and tokens stay as many.
        other_s: seconds a question that are not decode, of the base and of the other.
        both, only_base, only_other, neither: graded questions, by which arm was right.
        p_value: McNemar's, exact, of the two in the middle.
        difference: accuracy of the other less that of the base.
    """

    base: str
    other: str
    pairs: int
    unpaired: int
    ratio: Estimate
    speed_ratio: Estimate
    token_ratio: Estimate
    decode_share: float
    predicted: float
    other_s: tuple[float, float]
    both: int
    only_base: int
    only_other: int
    neither: int
    p_value: float
    difference: Estimate


def compare(names: tuple[str, str], base: Sequence[Row], other: Sequence[Row]) -> Comparison:
    """The second arm against the first."""
    second = {row.question.id: row for row in other}
    asked = [(row, second[row.question.id]) for row in base if row.question.id in second]
    fine = [(a, b) for a, b in asked if a.call.is_ok and b.call.is_ok]
    times = _columns(fine, lambda row: row.seconds)
    decode = _columns(fine, lambda row: row.decode_s)
    tokens = _columns(fine, lambda row: float(row.call.output_tokens or 0))
    speed_ratio = _speed_ratio(fine)
    share = float(decode[0].sum() / times[0].sum()) if fine else float("nan")
    graded = [(a, b) for a, b in asked if a.grade.correct is not None and b.grade.correct is not None]
    right = _columns(graded, lambda row: float(bool(row.grade.correct)))
    counts = [[int(((right[0] == a) & (right[1] == b)).sum()) for b in (1, 0)] for a in (1, 0)]
    discordant = counts[0][1] + counts[1][0]
    return Comparison(
        *names,
        pairs=len(fine),
        unpaired=len({row.question.id for row in (*base, *other)}) - len(fine),
        ratio=bootstrap(_ratio, *times),
        speed_ratio=speed_ratio,
        token_ratio=bootstrap(_ratio, tokens[1], tokens[0]),
        decode_share=share,
        predicted=1 / (1 - share + share / speed_ratio.value),
        other_s=(_mean(times[0] - decode[0]), _mean(times[1] - decode[1])),
        both=counts[0][0],
        only_base=counts[0][1],
        only_other=counts[1][0],
        neither=counts[1][1],
        p_value=float(stats.binomtest(counts[0][1], discordant).pvalue) if discordant else 1.0,
        difference=bootstrap(lambda a, b: (b - a).mean(axis=-1), *right),
    )


def _columns(pairs: Sequence[tuple[Row, Row]], value: Any) -> tuple[Floats, Floats]:
    return np.array([value(a) for a, _ in pairs], dtype=float), np.array([value(b) for _, b in pairs], dtype=float)


def _ratio(above: Floats, below: Floats) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return above.sum(axis=-1) / below.sum(axis=-1)


def _speed_ratio(pairs: Sequence[tuple[Row, Row]]) -> Estimate:
    """Of speeds over all answers together: tokens after the first chunk, over the seconds that they took."""
    known = [(a, b) for a, b in pairs if a.answer.speed is not None and b.answer.speed is not None]
    seconds = _columns(known, _streamed_s)
    tokens = _columns(known, lambda row: (row.answer.speed or 0.0) * _streamed_s(row))

    def ratio(base_tokens: Floats, base_s: Floats, other_tokens: Floats, other_s: Floats) -> Any:
        return _ratio(other_tokens, other_s) / _ratio(base_tokens, base_s)

    return bootstrap(ratio, tokens[0], seconds[0], tokens[1], seconds[1])


def _streamed_s(row: Row) -> float:
    return (row.call.last_token_s or 0.0) - (row.call.first_token_s or 0.0)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")
