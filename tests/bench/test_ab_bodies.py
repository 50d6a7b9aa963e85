"""What the gateway reads out of answers and writes into requests, whatever is in them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ultrafast.bench.ab.gateway import answer, body
from ultrafast.bench.client.call import Call


def test_what_anthropic_says() -> None:
    events = [
        {
            "type": "message_start",
            "message": {"model": "m", "usage": {"input_tokens": 4, "cache_read_input_tokens": 6}},
        },
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    call = Call("1", {}, "fast", 0.0)
    pieces = [(float(n), b"event: x\ndata: " + json.dumps(e).encode() + b"\n\n") for n, e in enumerate(events)]
    answer.read_body(call, pieces, "text/event-stream")
    assert (call.prompt_tokens, call.cached_tokens, call.output_tokens) == (10, 6, 9)
    assert (call.finish_reason, call.first_token_s, call.model_served) == ("end_turn", 1.0, "m")


@given(st.lists(st.tuples(st.floats(0, 10), st.binary(max_size=60)), max_size=8), st.booleans())
def test_any_answer_can_be_read(pieces: list[tuple[float, bytes]], streams: bool) -> None:
    answer.read_body(Call("1", {}, None, 0.0), pieces, "text/event-stream" if streams else "application/json")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "usage", "delta", "response", "message", "error", "type", "status", "text", "id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_can_be_read(value: object) -> None:
    raw = b"data: " + json.dumps(value).encode() + b"\n\n"
    answer.read_body(Call("1", {}, None, 0.0), [(0.0, raw)], "text/event-stream")
    answer.read_body(Call("1", {}, None, 0.0), [(0.0, raw[6:])], "application/json")
    body.for_arm(raw[6:], "chat/completions", {"service_tier": "ultrafast"})


@given(st.binary(max_size=80))
def test_any_body_goes_out(raw: bytes) -> None:
    assert body.for_arm(raw, "chat/completions", {}).raw == raw


@given(st.lists(st.integers(1, 40)))
def test_the_usage_chunk_is_found_however_the_stream_is_cut(cuts: list[int]) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'
    text = b'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}\r\n\r\n: note\n\n'
    stream, through, sieve = text + usage + b"data: [DONE]\n\nleft", b"", body.UsageFilter()
    for cut in [*cuts, len(stream)]:
        through, stream = through + sieve.feed(stream[:cut]), stream[cut:]
    assert through + sieve.end() == text + b"data: [DONE]\n\nleft"
