"""What the calls of a cell come to: figures with intervals, and what a reader must know beside them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ultrafast.bench.client.call import Call
from ultrafast.bench.client.endpoint import Price
from ultrafast.bench.load.columns import SPEED, Column, columns, counts, decode_s, is_answered, kept, measured
from ultrafast.bench.load.plan import Cell
from ultrafast.bench.load.slo import Slo
from ultrafast.bench.statistics import Estimate, bootstrap, needed_for, proportion, quantile

INTER_TOKEN = "inter_token_s"
"""Time a token after the first chunk, over each call as a whole: chunks are no tokens, and their gaps no latency of
tokens."""


@dataclass(slots=True)
class Stretch:
    """One segment as it went: its calls, and the seconds from the first intended start to the last end."""

    calls: list[Call]
    wall_s: float


@dataclass(frozen=True, slots=True)
class Money:
    """US dollars, at the prices of the tier that was asked for; or, `is_relative`, millions of tokens of the server's
    default tier that cost as much."""

    total: float
    per_call: float
    is_relative: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """One cell.

    Attributes:
        quantiles: by figure: by ``p50``…, estimates; ``None`` with too few calls to tell. For times p95 is what 95 %
            of the calls stay within; for speeds p5 is what 95 % of them reach.
        wall_s: seconds of its segments together.
        held: calls in flight, on average over that time.
        tokens_per_s, calls_per_s: output of all calls together; intervals from segment to segment.
        decode_share: of the time of calls, between first and last token.
        goodput: share of the calls that kept to the objectives; ``None`` without any.
        acceptance: of drafted tokens, where the server says.
        counted: calls by where token counts come from.
    """

    cell: Cell
    calls: int
    cancelled: int
    outcomes: Mapping[str, int]
    errors: Mapping[str, int]
    tiers_served: Mapping[str, int]
    downgraded: int
    columns: Mapping[str, Column]
    counts: Mapping[str, Column]
    quantiles: Mapping[str, Mapping[str, Estimate | None]]
    wall_s: float
    segments: int
    held: float
    tokens_per_s: Estimate
    calls_per_s: Estimate
    decode_share: Estimate
    goodput: Estimate | None
    acceptance: Estimate | None
    cost: Money | None
    counted: Mapping[str, int] = field(default_factory=dict)

    def missing(self, figure: str, name: str) -> int:
        """How many more calls the quantile needs before it can be told."""
        return max(0, needed_for(level(name)) - len(measured(self.columns[_column_of(figure)])))

    def mean_of(self, count: str) -> float:
        """Of a column of counts; ``nan`` where nobody says."""
        values = measured(self.counts[count])
        return float(np.mean(values)) if values else math.nan


def summarise(cell: Cell, stretches: Sequence[Stretch], price: Price | None, slo: Slo | None) -> Summary:
    """See `Summary`."""
    everything = [call for stretch in stretches for call in stretch.calls]
    calls = kept(everything)
    timed, counted = columns(calls), counts(calls)
    met = slo.met(timed) if slo else None
    return Summary(
        cell=cell,
        calls=len(calls),
        cancelled=len(everything) - len(calls),
        outcomes=Counter(_outcome(call) for call in calls),
        errors=Counter(_error_of(call) for call in calls if not is_answered(call)),
        tiers_served=Counter(call.tier_served or "not said" for call in calls if is_answered(call)),
        downgraded=sum(is_other_tier(call) for call in calls),
        columns=timed,
        counts=counted,
        quantiles=_quantiles(timed),
        wall_s=sum(stretch.wall_s for stretch in stretches),
        segments=len(stretches),
        held=_held(stretches),
        tokens_per_s=_per_second(stretches, _tokens),
        calls_per_s=_per_second(stretches, _ended),
        decode_share=_decode_share(calls),
        goodput=None if met is None else proportion(sum(met), len(met)),
        acceptance=_acceptance(calls),
        cost=None if price is None else _cost(calls, price),
        counted=Counter(call.token_source for call in calls if is_answered(call)),
    )


def level(name: str) -> float:
    """``p95`` → 0.95."""
    return float(name.removeprefix("p")) / 100


def is_other_tier(call: Call) -> bool:
    """Whether another tier served it than was asked for; ``auto`` and ``priority`` are only other words."""
    asked, served = (_WORDS.get(word or "", word) for word in (call.tier_asked, call.tier_served))
    return asked is not None and served is not None and asked != served


_WORDS: Mapping[str, str] = {"auto": "default", "priority": "fast"}


def _column_of(figure: str) -> str:
    return SPEED if figure == INTER_TOKEN else figure


def _quantiles(timed: Mapping[str, Column]) -> dict[str, dict[str, Estimate | None]]:
    speeds = measured(timed[SPEED])
    inter_token = [1 / speed if speed else math.inf for speed in speeds]
    figures = {SPEED: speeds, INTER_TOKEN: inter_token} | {
        name: measured(column) for name, column in timed.items() if name != SPEED
    }
    return {
        figure: {
            name: quantile(values, level(name)) if len(values) >= needed_for(level(name)) else None
            for name in (("p50", "p5", "p1") if figure == SPEED else ("p50", "p95", "p99"))
        }
        for figure, values in figures.items()
        if values
    }


def _tokens(calls: Sequence[Call]) -> int:
    return sum(call.output_tokens or 0 for call in calls if is_answered(call))


def _ended(calls: Sequence[Call]) -> int:
    return sum(map(is_answered, calls))


def _per_second(stretches: Sequence[Stretch], count: Callable[[Sequence[Call]], int]) -> Estimate:
    return bootstrap(_share, *_columns([(count(stretch.calls), stretch.wall_s) for stretch in stretches]))


def _held(stretches: Sequence[Stretch]) -> float:
    wall_s = sum(stretch.wall_s for stretch in stretches)
    flights = [call.done_s - call.sent_s for s in stretches for call in s.calls if call.done_s and call.sent_s]
    return sum(flights) / wall_s if wall_s else 0.0


def _decode_share(calls: Sequence[Call]) -> Estimate:
    pairs = [(decode_s(call), call.e2e_s) for call in calls if is_answered(call)]
    known = [(decode, e2e) for decode, e2e in pairs if decode is not None and e2e]
    return bootstrap(_share, *_columns(known))


def _acceptance(calls: Sequence[Call]) -> Estimate | None:
    stated = [
        (call.server.accepted_tokens, call.server.drafted_tokens)
        for call in calls
        if call.server.drafted_tokens and call.server.accepted_tokens is not None
    ]
    return bootstrap(_share, *_columns(stated)) if stated else None


def _columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[float], list[float]]:
    return [float(part) for part, _ in pairs], [float(whole) for _, whole in pairs]


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> Any:
    return part.sum(axis=-1) / whole.sum(axis=-1)


def _cost(calls: Sequence[Call], price: Price) -> Money:
    def of(call: Call) -> float:
        cached = call.cached_tokens or 0
        fresh = (call.prompt_tokens or 0) - cached
        cached_price = price.input if price.cached_input is None else price.cached_input
        return (fresh * price.input + cached * cached_price + (call.output_tokens or 0) * price.output) / 1e6

    total = sum(map(of, calls))
    return Money(total, total / len(calls) if calls else math.nan, price.is_relative)


def _outcome(call: Call) -> str:
    return "empty" if call.is_ok and not is_answered(call) else call.outcome.value


def _error_of(call: Call) -> str:
    if call.is_ok:
        return "empty: it ended well, without a token"
    status = f" {call.status}" if call.status else ""
    return f"{call.outcome.value}{status}: {(call.error or 'no word on it')[:160]}"
