"""The arithmetic of the tiers' benchmark, on made-up events; no server."""

from __future__ import annotations

import json
import math

import pytest

import tiers
from tier_cases import lane, soak
from tier_cases.client import Answer, read_answer
from tier_cases.figures import Figure, Findings, Statistic, Target, percentile
from tier_cases.lane import Crowd
from tier_cases.report import UNITS, Results, document, table, verdict
from tier_cases.timeline import Chunk, Progress, gaps, pace


def _chunks(start: float, step: float, count: int, *, text: str = "abcd") -> tuple[Chunk, ...]:
    return tuple(Chunk(start + step * number, text) for number in range(count))


def _answer(chunks: tuple[Chunk, ...], tokens: int, *, sent: float = 0.0) -> Answer:
    return Answer(sent, 200, {}, chunks, "default", {"completion_tokens": tokens}, None, True)


# ---- what came, and when --------------------------------------------------------------------------------------


def test_gaps_count_every_pause_that_touches_the_span() -> None:
    chunks = [Chunk(at, "a") for at in (0.0, 1.0, 3.0, 6.0, 10.0)]
    assert gaps(chunks) == [1.0, 2.0, 3.0, 4.0]
    assert gaps(chunks, 2.0, 5.0) == [2.0, 3.0]  # each began or ended outside
    assert gaps(chunks, 4.0, 5.0) == [3.0]  # a span within one pause
    assert gaps(chunks, 10.0, 12.0) == []
    assert gaps(chunks[:1]) == []


def test_progress_counts_the_characters_of_all_streams() -> None:
    progress = Progress([[Chunk(1.0, "ab"), Chunk(3.0, "cd")], [Chunk(2.0, "efgh"), Chunk(3.0, "ij")]])
    assert [progress.at(moment) for moment in (0.0, 1.0, 1.5, 2.0, 3.0, 9.0)] == [2, 2, 4, 6, 10, 10]
    assert [progress.when(count) for count in (2, 4, 6, 10)] == [1.0, 1.5, 2.0, 3.0]
    assert (progress.start, progress.end) == (1.0, 3.0)


def test_pace_compares_the_same_text() -> None:
    """The streams slow down as they go: at equal moments, half the speed would look like less."""
    alone = Progress([[*_chunks(0.0, 0.01, 100), *_chunks(1.0, 0.04, 100)]])
    beside = Progress([[*_chunks(0.0, 0.01, 100), *_chunks(1.0, 0.08, 100)]])
    assert pace(alone, beside, 2.0, 6.0) == pytest.approx(0.5)
    assert pace(alone, alone, 0.2, 4.0) == pytest.approx(1.0)


def test_pace_looks_at_a_longer_piece_when_little_came_meanwhile() -> None:
    burst = tuple(chunk for number in range(40) for chunk in _chunks(number * 0.1, 0.0001, 10))
    alone = Progress([burst])
    held_up = Progress(
        [[*(c for c in burst if c.at < 2.0), *(Chunk(2 + (c.at - 2) * 10, c.text) for c in burst if c.at >= 2)]]
    )
    assert pace(alone, held_up, 2.2, 4.2) == pytest.approx(0.1, rel=0.15)
    assert pace(alone, held_up, 2.2, 4.2, at_least_s=0.0) == pytest.approx(0.1, rel=0.6)


def test_a_crowds_speed_is_in_tokens() -> None:
    """Two streams of four characters a chunk and two tokens a chunk, a chunk every half second."""
    streams = [_answer(_chunks(0.0, 0.5, 9), 18), _answer(_chunks(0.0, 0.5, 11), 22)]
    crowd = Crowd(streams, None)
    assert crowd.first_end == 4.0
    assert crowd.tokens_per_s(0.0, 4.0) == pytest.approx(8.0)


# ---- an answer from the wire ----------------------------------------------------------------------------------


def _event(text: str | None, **fields: object) -> bytes:
    choices = [] if text is None else [{"index": 0, "delta": {"content": text}}]
    data = json.dumps({"service_tier": "fast", "choices": choices, **fields}).encode()
    return b"data: " + data + b"\n\n"


def _sent(*writes: bytes) -> bytes:
    """As HTTP sends them: each write is a chunk with its size."""
    return b"".join(b"%x\r\n%b\r\n" % (len(write), write) for write in writes)


_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nX-Ultrafast-Tier: fast\r\n\r\n"


def test_an_answer_is_read_whatever_the_pieces() -> None:
    usage = {
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"accepted_prediction_tokens": 5, "rejected_prediction_tokens": 2},
    }
    body = [_event(""), _event("a\r\nb"), _event("data: [DONE]"), _event(None, usage=usage) + b"data: [DONE]\n\n"]
    wire = _HEAD + b"".join(_sent(write) for write in body) + b"0\r\n\r\n"
    whole = read_answer(1.0, [(2.0, wire)])
    bytewise = read_answer(1.0, [(2.0 + number, wire[number : number + 1]) for number in range(len(wire))])
    for answer in (whole, bytewise):
        assert (answer.status, answer.complete, answer.error, answer.tier) == (200, True, None, "fast")
        assert answer.headers["x-ultrafast-tier"] == "fast"
        assert answer.text == "a\r\nbdata: [DONE]"
        assert (answer.tokens, answer.cached_tokens) == (9, 64)
        assert (answer.draft_tokens("accepted"), answer.draft_tokens("rejected")) == (5, 2)
    assert whole.first_token_s == 1.0
    first_at = bytewise.chunks[0].at - 2.0
    assert wire[: int(first_at) + 1].endswith(_event("a\r\nb")[:-1])  # the moment of the byte that ended its line


def test_speed_and_gaps_of_an_answer() -> None:
    answer = _answer((Chunk(1.5, "a"), Chunk(1.6, "bc"), Chunk(2.5, "d")), 101, sent=1.0)
    assert answer.first_token_s == 0.5
    assert answer.tokens_per_s == pytest.approx(100.0)
    assert max(answer.gaps()) == pytest.approx(0.9)


def test_refusals_faults_and_ends_in_the_midst() -> None:
    error = b'{"error": {"message": "full", "type": "rate_limit_error", "code": "resource_unavailable"}}'
    refused = read_answer(0.0, [(1.0, b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 90\r\n\r\n" + error)])
    assert (refused.status, refused.error, refused.complete) == (429, "resource_unavailable", False)
    faulty = read_answer(0.0, [(1.0, _HEAD + _sent(_event("a"), b"data: " + error + b"\n\n", b"data: [DONE]\n\n"))])
    assert (faulty.status, faulty.error, faulty.complete) == (200, "resource_unavailable", True)
    cut = read_answer(0.0, [(1.0, _HEAD + _sent(_event("a"), _event("b"))[:-20])])
    assert (cut.text, cut.complete, cut.tokens) == ("a", False, 0)
    nothing = read_answer(0.0, [])
    assert (nothing.status, nothing.error, nothing.chunks) == (0, None, ())


# ---- figures and targets --------------------------------------------------------------------------------------


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile(list(range(1, 51)), 0.95) == 48
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([7.0], 0.95) == 7.0
    assert percentile([1.0, 2.0], 0.0) == 1.0


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (Target(">=", 2.0), True),
        (Target(">=", 2.1), False),
        (Target("<=", 2.0), True),
        (Target("<=", 9.0, Statistic.LARGEST), True),
        (Target("<=", 8.9, Statistic.LARGEST), False),
        (Target("<=", 8.9, Statistic.P95), False),
        (Target("<=", 13.0, Statistic.SUM), True),
        (Target("<=", 12.9, Statistic.SUM), False),
    ],
)
def test_targets(target: Target, met: bool) -> None:
    assert target.met([9.0, 2.0, 2.0]) is met


def _results() -> Results:
    found = Findings(
        (
            Figure("speed", "speed", "tokens/s"),
            Figure("first", "first token", "ms", Target("<=", 0.030, Statistic.P95)),
            Figure("share", "share", "", Target(">=", 0.85)),
            Figure("never", "never measured", "ms", Target("<=", 1.0)),
        )
    )
    for number in range(20):
        found.add("speed", 1000.0 + number)
        found.add("first", 0.01 + 0.001 * number)
    found.add("share", math.inf)
    found.add("share", 0.8)
    found.add("share", 0.84)
    found.facts["outcomes"] = {"fast: 429": 2}
    return Results("model", "Some CPU", 2, "Linux 6", {"lane": found})


def test_the_table() -> None:
    text = table(_results())
    rows = {line[:20].strip(): line.split() for line in text.splitlines()}
    assert rows["speed"] == ["speed", "tokens/s", "1,010", "1,018", "(1,000", "to", "1,019)", "20"]
    assert rows["first token"][2:] == ["ms", "19.5", "28.0", "(10.0", "to", "29.0)", "20", "p95", "<=", "30", "met"]
    assert rows["share"] == ["share", "0.84", "(0.80", "to", "inf)", "3", "median", ">=", "0.85", "not", "met"]
    assert rows["never measured"][-2:] == ["not", "measured"]
    assert "outcomes: fast: 429 2" in text
    assert "not complete" in text


def test_json_has_every_sample() -> None:
    results = _results()
    figures = json.loads(document(results))["cases"]["lane"]["figures"]
    assert figures["share"]["samples"] == [None, 0.8, 0.84]
    assert figures["share"]["verdict"] == "not met"
    assert figures["first"]["target"] == {"relation": "<=", "limit": 0.03, "statistic": "p95"}
    assert figures["never"]["median"] is None
    assert len(figures["speed"]["samples"]) == 20


def test_all_targets_must_have_been_measured() -> None:
    found = Findings((Figure("share", "share", "", Target(">=", 0.85)), Figure("speed", "speed")))
    results = Results("model", "Some CPU", 2, "Linux 6", {"lane": found}, complete=True)
    assert not results.all_met
    found.add("share", 0.9)
    assert results.all_met
    found.error = "the server ended"
    results.complete = False
    assert not results.all_met


def test_every_case_names_its_figures_once() -> None:
    for case in tiers.CASES.values():
        keys = [figure.key for figure in case.FIGURES]
        assert len(keys) == len(set(keys))
        assert all(figure.unit in UNITS for figure in case.FIGURES)
    with pytest.raises(AssertionError, match="speling"):
        Findings(lane.FIGURES).add("speling", 1.0)
    assert verdict(soak.FIGURES[0], Findings(soak.FIGURES)) == ""
