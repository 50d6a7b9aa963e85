"""What calls come to: known calls in, known figures out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ultrafast.bench.client.call import Call, Chunk, Outcome, ServerTimes
from ultrafast.bench.client.endpoint import Price
from ultrafast.bench.load.arrivals import ClosedLoop
from ultrafast.bench.load.columns import columns, first_clause_s
from ultrafast.bench.load.plan import Cell
from ultrafast.bench.load.selfcheck import Lag, doubts
from ultrafast.bench.load.slo import Slo
from ultrafast.bench.load.summary import Stretch, summarise
from ultrafast.errors import ConfigError

CELL = Cell("ultrafast", 100, 16, ClosedLoop(2))
PIECES = ["Well", " then, he", " said", " so"]


def call(start_s: float = 0.0, ttft_s: float = 0.5, step_s: float = 0.1, **changes: object) -> Call:
    """16 tokens in four chunks of 4, the last `3 * step_s` after the first."""
    times = [start_s + ttft_s + step_s * index for index in range(len(PIECES))]
    made = Call(
        id="1",
        tags={},
        tier_asked="ultrafast",
        intended_s=start_s,
        sent_s=start_s + 0.01,
        first_token_s=times[0],
        first_answer_s=times[0],
        last_token_s=times[-1],
        done_s=times[-1] + 0.1,
        chunks=[Chunk(at, 4.0, "answer", len(piece)) for at, piece in zip(times, PIECES, strict=True)],
        tier_served="ultrafast",
        prompt_tokens=100,
        cached_tokens=40,
        output_tokens=16,
        token_source="chunks",
        text="".join(PIECES),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_figures_of_one_kind_of_call() -> None:
    calls = [call(float(index)) for index in range(60)]
    summary = summarise(CELL, [Stretch(calls[:30], 30.0), Stretch(calls[30:], 30.0)], None, None)
    quantiles = summary.quantiles
    for figure, value in {
        "output_speed": 12 / 0.3,
        "inter_token_s": 0.3 / 12,
        "ttft_s": 0.5,
        "ttfat_s": 0.5,
        "first_clause_s": 0.6,  # the comma is in the second chunk
        "e2e_s": 0.9,
        "longest_gap_s": 0.1,
    }.items():
        median = quantiles[figure]["p50"]
        assert median is not None
        assert (median.value, median.low, median.high, median.n) == pytest.approx((value, value, value, 60))
        told = [of is not None for of in quantiles[figure].values()]
        assert told == [True, True, False]  # 59 calls tell p95, 299 tell p99
    assert summary.missing("e2e_s", "p99") == 239
    assert summary.tokens_per_s.value == pytest.approx(16.0)
    assert summary.calls_per_s.value == pytest.approx(1.0)
    assert summary.held == pytest.approx(0.89)
    assert summary.decode_share.value == pytest.approx(0.3 / 0.9)
    assert summary.mean_of("tokens_per_chunk") == 4
    assert math.isnan(summary.mean_of("reasoning_tokens"))


def test_calls_without_an_end_are_inside_the_percentiles() -> None:
    good = [call(float(index)) for index in range(90)]
    bad = [call(100.0, outcome=Outcome.TIMEOUT, error="no end within 5 s") for _ in range(10)]
    summary = summarise(CELL, [Stretch([*good, *bad], 200.0)], None, Slo.parse("ttft=1"))
    assert summary.outcomes == {"ok": 90, "timeout": 10}
    assert summary.errors == {"timeout: no end within 5 s": 10}
    for figure, tail in {"ttft_s": math.inf, "e2e_s": math.inf, "inter_token_s": math.inf}.items():
        median, p95 = (summary.quantiles[figure][name] for name in ("p50", "p95"))
        assert median is not None
        assert math.isfinite(median.value)
        assert p95 is not None
        assert p95.value == tail
    p5 = summary.quantiles["output_speed"]["p5"]
    assert p5 is not None
    assert p5.value == 0
    assert summary.goodput is not None
    assert (summary.goodput.value, summary.goodput.n) == (0.9, 100)
    assert summary.tokens_per_s.value == pytest.approx(90 * 16 / 200)


def test_an_empty_answer_is_as_good_as_none() -> None:
    summary = summarise(CELL, [Stretch([call(), call(chunks=(), text="", output_tokens=0)], 1.0)], None, None)
    assert summary.outcomes == {"ok": 1, "empty": 1}
    assert summary.errors == {"empty: it ended well, without a token": 1}
    assert summary.columns["ttft_s"] == [0.5, math.inf]


def test_calls_that_we_cancelled_are_left_out() -> None:
    calls = [call(), call(outcome=Outcome.CANCELLED)]
    summary = summarise(CELL, [Stretch(calls, 1.0)], None, None)
    assert (summary.calls, summary.cancelled, len(summary.columns["ttft_s"])) == (1, 1, 1)


def test_another_tier_than_asked_is_counted() -> None:
    calls = [call(), call(tier_served="default"), call(tier_served=None)]
    summary = summarise(CELL, [Stretch(calls, 1.0)], None, None)
    assert summary.downgraded == 1
    assert summary.tiers_served == {"ultrafast": 1, "default": 1, "not said": 1}
    words = [
        call(tier_asked=asked, tier_served=served) for asked, served in (("auto", "default"), ("priority", "fast"))
    ]
    assert summarise(CELL, [Stretch(words, 1.0)], None, None).downgraded == 0


def test_what_the_server_says_of_itself_is_used() -> None:
    calls = [call(server=ServerTimes(decode_s=0.45, drafted_tokens=20, accepted_tokens=5)) for _ in range(3)]
    summary = summarise(CELL, [Stretch(calls, 3.0)], None, None)
    assert summary.decode_share.value == pytest.approx(0.5)
    assert summary.acceptance is not None
    assert summary.acceptance.value == pytest.approx(0.25)
    assert summarise(CELL, [Stretch([call()], 1.0)], None, None).acceptance is None


@pytest.mark.parametrize(
    ("price", "per_call"),
    [
        (Price(2.0, 10.0), (100 * 2 + 16 * 10) / 1e6),
        (Price(2.0, 10.0, cached_input=0.5), (60 * 2 + 40 * 0.5 + 16 * 10) / 1e6),
    ],
)
def test_cost(price: Price, per_call: float) -> None:
    summary = summarise(CELL, [Stretch([call(), call()], 1.0)], price, None)
    assert summary.cost is not None
    assert (summary.cost.per_call, summary.cost.total) == pytest.approx((per_call, 2 * per_call))


@pytest.mark.parametrize(
    ("pieces", "expected_s"),
    [
        ([("Hm", 1), (".", 1), (" Yes", 1)], 0.6),
        ([("word ", 4)] * 5, 0.7),  # 12 tokens are enough to begin with
        ([("Yes", 1), ("sir", 1)], 0.7),  # no clause at all: the end of the call
        ([], None),
    ],
)
def test_first_clause(pieces: list[tuple[str, int]], expected_s: float | None) -> None:
    chunks = [Chunk(0.5 + 0.1 * index, tokens, "answer", len(text)) for index, (text, tokens) in enumerate(pieces)]
    text = "".join(text for text, _ in pieces)
    assert first_clause_s(call(chunks=chunks, text=text, done_s=0.7)) == pytest.approx(expected_s)


def test_thoughts_are_no_clause() -> None:
    chunks = [Chunk(0.2, 1, "thought", 6), Chunk(0.4, 1, "answer", 3), Chunk(0.6, 1, "answer", 1)]
    assert first_clause_s(call(chunks=chunks, text="Yes.", thoughts="Hm. Hm")) == pytest.approx(0.6)


def test_one_chunk_has_no_speed() -> None:
    assert columns([call(chunks=[Chunk(0.5, 16.0)])])["output_speed"] == [None]


def test_objectives() -> None:
    slo = Slo.parse(" ttft=0.5, speed=50")
    assert str(slo) == "ttft ≤ 0.5 s, speed ≥ 50 tokens/s"
    timed = columns([call(ttft_s=0.4, step_s=0.05), call(ttft_s=0.6, step_s=0.05), call(ttft_s=0.4, step_s=0.1)])
    assert slo.met(timed) == [True, False, False]


@pytest.mark.parametrize("text", ["", "ttft", "ttft=", "ttft=fast", "ttft=0", "ttft=nan", "latency=1", "ttft=1,ttft=2"])
def test_objectives_that_say_nothing(text: str) -> None:
    with pytest.raises(ConfigError, match="--slo"):
        Slo.parse(text)


@pytest.mark.parametrize(
    ("lag", "figure", "words"),
    [
        (Lag(0.001, 0.007, 0.009, 99), Lag(0.1, 0.15, 0.2, 300), []),
        (
            Lag(0.006, 0.007, 0.009, 99),
            Lag(0.1, 0.15, 0.2, 9),
            ["p50 is 6.0 ms, 100.0 ms"],
        ),
        (
            Lag(0.001, 0.008, 0.009, 99),
            Lag(0.1, 0.15, 0.2, 59),
            ["p95 is 8.0 ms, 150.0 ms"],
        ),
        (Lag(0.001, 0.008, 0.011, 99), Lag(0.1, 0.15, 0.2, 58), []),  # no p95 of 58 calls is told
        (
            Lag(0.001, 0.007, 0.011, 99),
            Lag(0.1, 0.15, 0.2, 299),
            ["p99 is 11.0 ms, 200.0 ms"],
        ),
        (Lag(0.0, 0.0, 0.11, 99), Lag(60.0, 60.0, 60.0, 9), ["p99 is 110.0 ms, more than the 100 ms"]),
        (Lag.of([]), Lag(0.1, 0.15, 0.2, 50), []),
    ],
)
def test_a_client_later_than_a_twentieth_is_doubted(lag: Lag, figure: Lag, words: list[str]) -> None:
    found = doubts({"reading": lag}, {"calls": figure})
    short = [doubt.replace(" more than 5% of that of calls,", "").removesuffix(" that are allowed") for doubt in found]
    assert short == [f"reading: {word}" for word in words]
