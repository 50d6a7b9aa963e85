"""Streams of events, read after their end: framing, both wire formats, and bytes that are anything at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.schedule_wire import ChatWire, ResponseWire, Wire
from support.schedules import WORD, Schedule, Step
from ultrafast.bench.client.call import Call, Outcome, ServerTimes, ToolCall
from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.endpoint import Api
from ultrafast.bench.client.reading import fill
from ultrafast.bench.client.recording import Recording
from ultrafast.bench.client.sse import Read, events_of

ASKS_COUNTS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
MIXED = Schedule(
    steps=[Step(0, 3, "thought"), Step(0, 1, "thought"), Step(0, 5), Step(0, 8), Step(0, 2, "tool"), Step(0, 4, "tool")]
)


def stream_of(api: Api, schedule: Schedule = MIXED) -> bytes:
    """The body of an answer as the reference endpoint sends it."""
    wire: Wire = ResponseWire("a", {}, schedule) if api == "responses" else ChatWire("a", ASKS_COUNTS, schedule)
    if api == "completions":
        wire = ChatWire("a", ASKS_COUNTS, schedule, is_raw=True)
    return sse(*wire.opening(), *map(wire.step, schedule.steps), *wire.ending(), done=api != "responses")


def sse(*events: Any, done: bool = True) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n" * done


def call_of(api: Api, reads: Sequence[Read], **fields: Any) -> Call:
    """The record of what was read."""
    recording = Recording(RunClock(), sent_s=0.0, status=200, reads=list(reads), ended_s=1000.0, **fields)
    call = Call("1", {}, None, 0.0)
    for _ in fill(call, recording, api, None):
        pass
    return call


def chat(*events: Any, done: bool = True) -> Call:
    return call_of("chat", [(1.0, sse(*events, done=done))])


def delta(finish: str | None = None, usage: Any = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}], "usage": usage}


def cut(body: bytes, places: Sequence[int]) -> list[Read]:
    """The body in reads that end at those places, one a second."""
    edges = sorted({0, *(place % (len(body) + 1) for place in places), len(body)})
    return [(float(time), body[a:b]) for time, (a, b) in enumerate(pairwise(edges))]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"event: x\nid: 1\ndata: a\nretry: 5\n\n", [b"a"]),
        (b": a comment\n\n: ping\n\ndata: a\n\n", [b"a"]),
        (b"\n\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\r\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\n\ndata: b", [b"a", b"b"]),
        (b"data\n\ndata:\n\ndata: \n\ndata: a\n\n", [b"a"]),
        (b"", []),
    ],
)
def test_framing(body: bytes, events: list[bytes]) -> None:
    for size in (1, 2, 3, len(body) or 1):
        reads = [(float(at), body[at : at + size]) for at in range(0, len(body), size)]
        assert [data for _, data in events_of(reads, is_whole=True)] == events


def test_what_follows_the_last_blank_line_of_a_stream_cut_short_is_no_event() -> None:
    assert list(events_of([(1.0, b"data: a\n\ndata: b")], is_whole=False)) == [(1.0, b"a")]


def test_an_event_has_the_time_of_the_read_that_completed_it() -> None:
    reads = [(1.0, b"data: a\n"), (2.0, b"\ndata: b\n\nda"), (3.0, b"ta: "), (4.0, b"c\n\n")]
    assert list(events_of(reads, is_whole=True)) == [(2.0, b"a"), (2.0, b"b"), (4.0, b"c")]


@settings(max_examples=60, deadline=None)
@given(api=st.sampled_from(["chat", "completions", "responses"]), places=st.lists(st.integers(0, 10_000), max_size=30))
def test_where_reads_are_cut_changes_nothing_but_times(api: Api, places: list[int]) -> None:
    schedule = MIXED if api != "completions" else Schedule(steps=[Step(0, n) for n in (3, 1, 8)])
    body = stream_of(api, schedule)
    whole, parts = call_of(api, [(0.0, body)]), call_of(api, cut(body, places))
    assert whole.outcome is Outcome.OK
    for name in set(Call.__slots__) - {
        "chunks", "first_byte_s", "first_token_s", "first_answer_s", "last_token_s", "done_s"
    }:  # fmt: skip
        assert getattr(whole, name) == getattr(parts, name), name
    assert [(chunk.tokens, chunk.kind) for chunk in whole.chunks] == [(c.tokens, c.kind) for c in parts.chunks]
    times = [chunk.at_s for chunk in parts.chunks]
    assert times == sorted(times)
    assert parts.done_s is not None
    assert parts.done_s >= times[-1]


@settings(max_examples=200, deadline=None)
@given(
    api=st.sampled_from(["chat", "completions", "responses", "socket"]),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 3), st.binary(max_size=8)), min_size=1, max_size=6),
)
def test_mutated_streams_give_a_record(api: Api, edits: list[tuple[int, int, bytes]]) -> None:
    body = stream_of("responses" if api == "socket" else api)
    for place, removed, added in edits:
        place %= len(body) + 1
        body = body[:place] + added + body[place + removed :]
    events = [(1.0, line[6:]) for line in body.split(b"\n\n")] if api == "socket" else [(1.0, body)]
    call = call_of(api, events)
    assert (call.outcome is Outcome.OK) == (call.error is None)
    assert call.error is None or 0 < len(call.error) < 1500


@settings(max_examples=100, deadline=None)
@given(api=st.sampled_from(["chat", "completions", "responses"]), body=st.binary(max_size=200))
def test_any_bytes_give_a_record(api: Api, body: bytes) -> None:
    assert call_of(api, [(1.0, b"data: " + body)]).outcome is not Outcome.OK


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"error": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"usage": {"completion_tokens": 1' + b"0" * 400 + b"}}",
        b'{"usage": {"completion_tokens": -1}}',
        b'{"choices": [null]}',
        b'{"choices": [{"delta": {"content": ["a"]}}]}',
        b'{"choices": [{"delta": {"content": "\xff"}}]}',
        b"null",
        b"x",
    ],
)
def test_hostile_events_are_said_to_be_malformed(data: bytes) -> None:
    call = call_of("chat", [(1.0, sse(delta(content="a"), done=False) + b"data: " + data + b"\n\n")])
    assert call.outcome is Outcome.BROKEN
    assert call.error is not None
    assert call.error.startswith("an event of the stream is malformed (")
    assert call.text == "a"  # what came before is kept


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_counts_with_every_event_are_the_tokens_of_the_events(api: Api) -> None:
    schedule = Schedule(steps=[Step(0, tokens) for tokens in (3, 1, 8, 2)])
    call = call_of(api, [(1.0, stream_of(api, schedule))])
    assert call.token_source == "chunks"
    assert [chunk.tokens for chunk in call.chunks] == [3, 1, 8, 2]
    assert (call.output_tokens, call.prompt_tokens, call.cached_tokens) == (14, 10, 4)
    assert call.text == WORD * 14


def test_kinds_of_events() -> None:
    for api in ("chat", "responses"):
        reads = [(float(at), block) for at, block in enumerate(stream_of(api).split(b"\n\n"))]
        call = call_of(api, [(at, block + b"\n\n") for at, block in reads])
        kinds = [chunk.kind for chunk in call.chunks]
        assert kinds == ["thought"] * 2 + ["answer"] * 2 + ["tool"] * 2
        assert (call.first_token_s, call.first_answer_s, call.last_token_s) == (1, 3, 6)  # at 0: the opening
        assert (call.thoughts, call.text) == (WORD * 4, WORD * 13)
        assert call.tool_calls[0].arguments == WORD * 6


def test_tokens_that_are_no_text_yet_count_with_the_next_event() -> None:
    def counted(tokens: int) -> dict[str, int]:
        return {"completion_tokens": tokens}

    call = chat(
        delta(role="assistant", content="", usage=counted(0)),
        delta(content="", usage=counted(2)),
        delta(content="a", usage=counted(3)),
        delta(content="b", usage=counted(4)),
        delta("stop", usage=counted(5)),
    )
    assert [chunk.tokens for chunk in call.chunks] == [3, 1]
    assert call.output_tokens == 5


@pytest.mark.parametrize("usages", [[None, None, 8], [0, 0, 8], [5, 3, 8], [None, 8, 8], [0, 0, 0]])
def test_what_is_no_running_count_is_not_taken_for_one(usages: list[int | None]) -> None:
    words = ["a", "bbb", "cccc"]
    stated = [usage if usage is None else {"completion_tokens": usage} for usage in usages]
    events = [delta(content=word, usage=usage) for word, usage in zip(words, stated, strict=True)]
    call = chat(*events, delta("stop", usage={"completion_tokens": 16}))
    assert call.token_source == "estimated"
    assert [chunk.tokens for chunk in call.chunks] == pytest.approx([2, 6, 8])


def test_estimates_leave_out_reasoning_that_is_not_shown() -> None:
    usage = {"completion_tokens": 100, "completion_tokens_details": {"reasoning_tokens": 90}}
    hidden = chat(delta(content="a"), delta(content="aaaa"), delta("stop", usage=usage))
    assert [chunk.tokens for chunk in hidden.chunks] == pytest.approx([2, 8])
    assert (hidden.output_tokens, hidden.reasoning_tokens) == (100, 90)
    shown = chat(delta(reasoning="aaaa"), delta(content="a"), delta("stop", usage=usage))
    assert [chunk.tokens for chunk in shown.chunks] == pytest.approx([80, 20])


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_very_long_answers(api: Api) -> None:
    """What takes more than a time in proportion to the events does not end here within minutes."""
    schedule = Schedule(steps=[Step(0)] * 30_000, usage="end")
    body = stream_of(api, schedule)
    call = call_of(api, [(float(at), body[at : at + 50]) for at in range(0, len(body), 50)])
    assert (call.outcome, len(call.chunks), call.output_tokens) == (Outcome.OK, 30_000, 30_000)


def test_no_usage_at_all_leaves_counts_unknown() -> None:
    call = chat(delta(content="a"), delta(content="b"), delta("stop"))
    assert (call.outcome, call.token_source, call.output_tokens, call.output_speed) == (
        Outcome.OK,
        "unknown",
        None,
        None,
    )
    assert len(call.chunks) == 2


def test_several_tool_calls() -> None:
    def part(index: int | None, id: str | None = None, **function: str) -> dict[str, Any]:
        return delta(tool_calls=[{"index": index, "id": id, "function": function}])

    wanted = [ToolCall("x", "look", '{"a":1}'), ToolCall("y", "go", "{}")]
    for first, second in ((0, 1), (None, None)):
        begun = part(first, "x", name="look", arguments=""), part(first, arguments='{"a":')
        rest = part(first, arguments="1}"), part(second, "y", name="go", arguments="{}")
        call = chat(*begun, *rest, delta("tool_calls"))
        assert call.tool_calls == wanted
        assert [chunk.kind for chunk in call.chunks] == ["tool"] * 4
    legacy = chat(delta(function_call={"name": "look", "arguments": "{}"}), delta("function_call"))
    assert legacy.tool_calls == [ToolCall("", "look", "{}")]


def test_a_call_of_responses_is_whole_in_its_last_event() -> None:
    item = {"type": "function_call", "id": "f", "call_id": "c", "name": "look", "arguments": ""}
    call = call_of(
        "responses",
        [
            (1.0, sse({"type": "response.output_item.added", "item": item}, done=False)),
            (2.0, sse({"type": "response.output_item.done", "item": {**item, "arguments": "{}"}}, done=False)),
            (3.0, sse({"type": "response.completed", "response": {"status": "completed"}}, done=False)),
        ],
    )
    assert call.tool_calls == [ToolCall("c", "look", "{}")]
    assert (call.finish_reason, call.first_answer_s, call.done_s) == ("tool_calls", 1.0, 3.0)


def test_how_responses_end() -> None:
    def ended(*events: Any) -> Call:
        return call_of("responses", [(1.0, sse(*events, done=False))])

    cut_off = ended(
        {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}
    )
    assert (cut_off.outcome, cut_off.finish_reason) == (Outcome.OK, "length")
    failed = ended({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "no luck"}}})
    assert (failed.outcome, failed.error) == (Outcome.ERROR, "no luck")
    told_twice = ended({"type": "error", "message": "first"}, {"type": "response.failed", "response": {}})
    assert (told_twice.outcome, told_twice.error) == (Outcome.ERROR, "first")
    unended = ended({"type": "response.created", "response": {"id": "r"}})
    assert (unended.outcome, unended.error) == (Outcome.BROKEN, "the stream stopped without an end")


def test_how_chats_end() -> None:
    assert chat(delta(content="a"), delta("stop"), done=False).outcome is Outcome.OK  # some leave out [DONE]
    assert chat(delta(content="a"), done=True).outcome is Outcome.OK
    stopped = chat(delta(content="a"), done=False)
    assert (stopped.outcome, stopped.error) == (Outcome.BROKEN, "the stream stopped without an end")
    failed = chat(delta(content="a"), {"error": {"message": "no luck", "code": 500}}, done=True)
    assert (failed.outcome, failed.error, failed.text) == (Outcome.ERROR, "no luck", "a")
    assert chat({"error": "no luck"}).error == "no luck"
    page = call_of("chat", [(1.0, b"<html>hello")], content_type="text/html")
    assert page.error == "the answer is no event stream but text/html: <html>hello"
    assert call_of("chat", []).error == "the stream has no event"


def test_what_was_read_before_a_fault_is_kept() -> None:
    fault = (Outcome.TIMEOUT, "no end within 1 s")
    call = call_of(
        "chat", [(1.0, sse(delta(content="a"), delta(content="b"), done=False) + b'data: {"ch')], fault=fault
    )
    assert (call.outcome, call.error, call.text, call.done_s) == (*fault, "ab", 1000.0)
    assert len(call.chunks) == 2
    # … and after the end of the answer, a fault is none
    assert call_of("chat", [(1.0, sse(delta("stop"), done=True))], fault=fault).outcome is Outcome.OK


def test_the_servers_own_times() -> None:
    own = {"queue_ms": 1.5, "prefill_ms": 20, "decode_ms": 300.0, "drafted_tokens": 8, "accepted_tokens": 6}
    times = ServerTimes(0.0015, 0.02, 0.3, 8, 6)
    assert chat(delta("stop"), {"choices": [], "ultrafast": own}).server == times
    completed = {"type": "response.completed", "response": {"ultrafast": own}}
    assert call_of("responses", [(1.0, sse(completed, done=False))]).server == times
    timings = {"prompt_ms": 20.0, "predicted_ms": 300.0, "draft_n": 8, "draft_n_accepted": 6, "cache_n": 1}
    llama = chat({**delta("stop"), "timings": timings})
    assert llama.server == ServerTimes(None, 0.02, 0.3, 8, 6)


def test_the_last_word_on_the_tier_counts() -> None:
    call = chat(delta(content="a") | {"service_tier": "fast"}, delta("stop") | {"service_tier": "default"}, delta())
    assert call.tier_served == "default"
