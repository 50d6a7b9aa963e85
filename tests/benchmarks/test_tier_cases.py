"""The arithmetic of the tiers' benchmark, on made-up events; no server."""

from __future__ import annotations

import asyncio
import json
import math
import random
import string
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar, cast

import pytest

import tiers
from tier_cases import copying, drafting, lane, soak
from tier_cases.bench import Bench
from tier_cases.client import Answer, Client, read_answer
from tier_cases.drafting import Said
from tier_cases.figures import Figure, Findings, Statistic, Target, percentile
from tier_cases.lane import Crowd
from tier_cases.report import UNITS, Results, document, table, verdict
from tier_cases.timeline import Chunk, Progress, gaps, pace
from tier_cases.words import Words, said

_T = TypeVar("_T")


def _chunks(start: float, step: float, count: int, *, text: str = "abcd") -> tuple[Chunk, ...]:
    return tuple(Chunk(start + step * number, text) for number in range(count))


def _answer(chunks: tuple[Chunk, ...], tokens: int, *, sent: float = 0.0) -> Answer:
    return Answer(sent, 200, {}, chunks, "default", {"completion_tokens": tokens}, None, True)


# ---- what came, and when --------------------------------------------------------------------------------------


def test_gaps_count_every_pause_that_touches_the_span() -> None:
    chunks = [Chunk(at, "a") for at in (0.0, 1.0, 3.0, 6.0, 10.0)]
    assert gaps(chunks) == [1.0, 2.0, 3.0, 4.0]
    assert gaps(chunks, (2.0, 5.0)) == [2.0, 3.0]  # each began or ended outside
    assert gaps(chunks, (4.0, 5.0)) == [3.0]  # a span within one pause
    assert gaps(chunks, (10.0, 12.0)) == []
    assert gaps(chunks, (2.0, 9.0), without=[(2.5, 2.6), (7.0, 20.0)]) == [3.0]
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


def test_speed_of_an_answer() -> None:
    answer = _answer((Chunk(1.5, "a"), Chunk(1.6, "bc"), Chunk(2.5, "d")), 101, sent=1.0)
    assert answer.first_token_s == 0.5
    assert answer.tokens_per_s == pytest.approx(100.0)


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


# ---- what is asked --------------------------------------------------------------------------------------------


class _Letters:
    """As many tokens as characters."""

    never_ending: ClassVar[dict[str, int]] = {"0": -100}

    def nonsense(self, rng: random.Random, tokens: int) -> str:
        return "".join(rng.choices(string.ascii_lowercase, k=tokens))

    def story(self, rng: random.Random) -> list[dict[str, str]]:
        return said(str(rng.random()))


def test_the_copying_answers_are_right() -> None:
    by_key = {task.key: task for task in copying.tasks(cast(Words, _Letters()), random.Random(7))}
    rewrite = by_key["rewrite"]
    assert rewrite.prediction is not None
    before, after = rewrite.prediction.splitlines(), rewrite.target.splitlines()[1:-1]
    assert len(before) == len(after) == 60
    assert "reserved" not in rewrite.target
    assert 5 < sum(a != b for a, b in zip(before, after, strict=True)) < 15
    assert by_key["rewrite_context"].prediction is None

    log = by_key["quote"].messages[0]["content"].splitlines()
    lines = [line for line in log if line[:2].isdigit()]
    errors = [line for line in lines if "ERROR" in line]
    assert len(lines) == 200
    assert by_key["quote"].target == "\n".join(f"The log says: {line}" for line in errors)

    compact = by_key["json"].messages[0]["content"].splitlines()[-1]
    assert json.loads(compact) == json.loads(by_key["json"].target)
    assert len(by_key["json"].target) > len(compact)


def test_pairs_of_answers() -> None:
    found = Findings(drafting.FIGURES)
    plain = Said("abc", 100, 50.0, 0, 0)
    drafting.compare(found, "json", plain=plain, drafted=Said("abc", 100, 125.0, 60, 20))
    drafting.compare(found, "json", plain=plain, drafted=Said("abd", 100, 100.0, 50, 50))
    drafting.compare(found, "quote", plain=Said("", 1, 50.0, 0, 0), drafted=Said("", 1, 50.0, 0, 0))
    assert found.samples["json_ratio"] == [2.5, 2.0]
    assert found.samples["json_accepted"] == [0.6, 0.5]
    assert found.samples["json_rejected"] == [0.2, 0.5]
    assert found.samples["changed"] == [0, 1, 0]
    assert found.samples["short"] == [0, 0, 1]
    assert "quote_ratio" not in found.samples


# ---- the client and a scripted server -------------------------------------------------------------------------


def _asked(answers: list[bytes], use: Callable[[Client], Awaitable[_T]]) -> tuple[_T, list[bytes]]:
    """Run ``use`` against a server that gives one of the answers to each connection, then hangs up."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        requests.append(head + await reader.readexactly(length))
        writer.write(answers[len(requests) - 1])
        await writer.drain()
        writer.close()

    async def main() -> _T:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            client = Client(server.sockets[0].getsockname()[1], "tiny")
            result = await use(client)
            await client.close()
            return result

    return asyncio.run(main()), requests


def test_the_client_asks_and_reads() -> None:
    usage = {"completion_tokens": 2}
    wire = _HEAD + _sent(_event(""), _event("a"), _event("b"), _event(None, usage=usage) + b"data: [DONE]\n\n")

    async def use(client: Client) -> tuple[Answer, dict[str, object] | None, dict[str, object] | None]:
        answer = await client.ask(said("hello"), tier="fast", max_tokens=2, seed=5)
        return answer, await client.get("/v1/tiers"), await client.get("/none")

    found, missing = b"HTTP/1.1 200 OK\r\n\r\n" + b'{"a": 1}', b"HTTP/1.1 404 Not Found\r\n\r\n{}"
    (answer, tiers_there, none_there), requests = _asked([wire, found, missing], use)
    assert (answer.text, answer.tokens, answer.tier) == ("ab", 2, "fast")
    assert 0 < answer.first_token_s < 60
    assert tiers_there == {"a": 1}
    assert none_there is None
    body = json.loads(requests[0].partition(b"\r\n\r\n")[2])
    assert body["service_tier"] == "fast"
    assert body["stream"] is True
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0, 5, 2)
    assert requests[1].startswith(b"GET /v1/tiers HTTP/1.1\r\n")


def test_an_answer_of_no_use_is_told() -> None:
    async def use(client: Client) -> Answer:
        return await client.ask(said("hello"), tier="fast", max_tokens=2)

    refusal = b'HTTP/1.1 429 Too Many Requests\r\n\r\n{"error": {"code": "full"}}'
    with pytest.raises(RuntimeError, match="status 429, error full"):
        _asked([refusal], use)
    with pytest.raises(RuntimeError, match="status 200"):
        _asked([_HEAD + _sent(_event("a"))], use)


def test_what_a_standstill_touches_does_not_count() -> None:
    nothing = cast(Any, None)
    bench = Bench("gap", nothing, 1, nothing, Findings(()), random.Random(1), quick=False, minutes=1, client=nothing)
    bench.standstills.append((10.0, 12.0))
    spans = [(1.0, 10.0), (1.0, 10.1), (10.5, 11.0), (11.9, 20.0), (12.0, 20.0)]
    assert [bench.undisturbed(*span) for span in spans] == [True, False, False, False, True]
    assert bench.tokens(6000) == 6000
