"""What the two POST endpoints accept, honour and refuse, and how refusals name the field."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from support.asgi import Answer, broken_in_mid_stream, client_of
from support.scripted_engine import ByteTokenizer, ScriptedEngine, text_of
from ultrafast.engine.tiers import TIERS
from ultrafast.errors import RequestError
from ultrafast.serving.tiers import tier_of
from ultrafast.serving.wire.logprobs import logprob_entries
from ultrafast.types import GenerateRequest, SamplingParams, TokenLogprob

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
USER = {"role": "user", "content": "Hi"}
INTEGERS = [-1, 0, 2**31, 2**63, 10**30, 1.5, "1", True, [], {}]


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "scripted", "messages": [USER], "max_tokens": 3, **fields}


def responses(**fields: Any) -> dict[str, Any]:
    return {"model": "scripted", "input": "Hi", "max_output_tokens": 3, **fields}


def post_all(requests: list[tuple[str, Any]], engine: ScriptedEngine | None = None) -> list[Answer]:
    async def main() -> list[Answer]:
        async with asyncio.timeout(30), client_of(engine or ScriptedEngine()) as client:
            return [await client.post(path, body) for path, body in requests]

    return asyncio.run(main())


def post(path: str, body: Any, engine: ScriptedEngine | None = None) -> Answer:
    return post_all([(path, body)], engine)[0]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": [USER]}, "model"),
        (CHAT, {"model": "scripted"}, "messages"),
        (CHAT, chat(model=5), "model"),
        (CHAT, chat(messages=[]), "messages"),
        (CHAT, chat(messages="Hi"), "messages"),
        (CHAT, chat(messages=[USER, {"content": "x"}]), "messages[1].role"),
        (CHAT, chat(messages=[USER, {"role": "robot", "content": "x"}]), "messages[1].role"),
        (CHAT, chat(messages=[{"role": "tool", "content": "x"}]), "messages[0].tool_call_id"),
        (CHAT, chat(messages=[{"role": "user"}]), "messages[0].content"),
        (CHAT, chat(messages=[{"role": "user", "content": 5}]), "messages[0].content"),
        (CHAT, chat(messages=[USER, {"role": "user", "content": [{"type": "image_url"}]}]), "messages[1].content[0]"),
        (CHAT, chat(messages=[{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text"),
        (CHAT, chat(messages=[{"role": "assistant", "tool_calls": [{}]}]), "messages[0].tool_calls[0].function"),
        (CHAT, chat(temperature=2.1), "temperature"),
        (CHAT, chat(temperature="hot"), "temperature"),
        (CHAT, chat(top_p=1.5), "top_p"),
        (CHAT, chat(top_p=0), "top_p"),
        (CHAT, chat(repetition_penalty=0), "repetition_penalty"),
        (CHAT, chat(n=10**9), "n"),
        (CHAT, chat(n=9), "n"),
        (CHAT, chat(stop=["a", "b", "c", "d", "e"]), "stop"),
        (CHAT, chat(stop=""), "stop"),
        (CHAT, chat(stop=["a", ""]), "stop[1]"),
        (CHAT, chat(logprobs=True, top_logprobs=21), "top_logprobs"),
        (CHAT, chat(top_logprobs=2), "top_logprobs"),
        (CHAT, chat(presence_penalty=-2.5), "presence_penalty"),
        (CHAT, chat(frequency_penalty=3), "frequency_penalty"),
        (CHAT, chat(logit_bias={"5": 101}), "logit_bias"),
        (CHAT, chat(logit_bias={"five": 1}), "logit_bias"),
        (CHAT, chat(logit_bias={"99999999999999999999": 1}), "logit_bias"),
        (CHAT, chat(stream="yes"), "stream"),
        (CHAT, chat(service_tier="warp"), "service_tier"),
        (CHAT, chat(service_tier=5), "service_tier"),
        (CHAT, chat(service_tier_overflow="wait"), "service_tier_overflow"),
        (CHAT, chat(service_tier="flex", service_tier_overflow="queue"), "service_tier_overflow"),
        (CHAT, chat(cache_salt="x" * 257), "cache_salt"),
        (CHAT, chat(deadline_s=0), "deadline_s"),
        (CHAT, chat(deadline_s=86400.5), "deadline_s"),
        (CHAT, chat(prediction="text"), "prediction"),
        (CHAT, chat(prediction={"type": "content"}), "prediction.content"),
        (CHAT, chat(prediction={"type": "file", "content": ""}), "prediction.type"),
        (CHAT, chat(prediction={"type": "content", "content": [{"type": "image_url"}]}), "prediction.content[0]"),
        (RESPONSES, responses(service_tier_overflow=True), "service_tier_overflow"),
        (RESPONSES, responses(cache_salt=5), "cache_salt"),
        (RESPONSES, responses(deadline_s="soon"), "deadline_s"),
        (CHAT, chat(metadata={"k": 5}), "metadata"),
        (CHAT, chat(metadata={"k" * 65: "v"}), "metadata"),
        (CHAT, chat(metadata={str(i): "v" for i in range(17)}), "metadata"),
        (CHAT, chat(tools=[{"type": "function"}]), "tools[0].function"),
        (CHAT, chat(response_format={"type": "yaml"}), "response_format.type"),
        (CHAT, chat(modalities=["text", "audio"]), "modalities"),
        (RESPONSES, {"model": "scripted"}, "input"),
        (RESPONSES, responses(input=[]), "input"),
        (RESPONSES, responses(input=5), "input"),
        (RESPONSES, responses(input=[{"content": "x"}]), "input[0].role"),
        (RESPONSES, responses(input=[USER, {"type": "function_call_output", "call_id": "c"}]), "input[1].output"),
        (RESPONSES, responses(input=[{"role": "user", "content": [{"type": "input_image"}]}]), "input[0].content[0]"),
        (RESPONSES, responses(background=True), "background"),
        (RESPONSES, responses(conversation="c"), "conversation"),
        (RESPONSES, responses(text={"format": {"type": "json_schema"}}), "text.format.name"),
        (RESPONSES, responses(text={"verbosity": "loud"}), "text.verbosity"),
        (RESPONSES, responses(reasoning={"effort": "huge"}), "reasoning.effort"),
        (RESPONSES, responses(truncation="some"), "truncation"),
        (RESPONSES, responses(tools=[{"type": "function"}]), "tools[0].name"),
        (RESPONSES, responses(top_logprobs=-1), "top_logprobs"),
    ],
)
def test_a_bad_field_is_named(path: str, body: Any, param: str) -> None:
    answer = post(path, body)
    assert answer.status == 400
    assert answer.error["param"] == param
    assert answer.error["type"] == "invalid_request_error"
    assert "`$" not in answer.error["message"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (CHAT, "max_tokens"),
        (CHAT, "max_completion_tokens"),
        (CHAT, "n"),
        (CHAT, "seed"),
        (CHAT, "top_k"),
        (CHAT, "top_logprobs"),
        (RESPONSES, "max_output_tokens"),
        (RESPONSES, "top_logprobs"),
    ],
)
def test_integers_at_their_edges_are_honoured_or_refused(path: str, field: str) -> None:
    make = chat if path == CHAT else responses
    answers = post_all([(path, make(**{"logprobs": True, field: value})) for value in INTEGERS])
    for value, answer in zip(INTEGERS, answers, strict=True):
        assert answer.status in (200, 400), (field, value, answer.body)
        if answer.status == 400:
            assert answer.error["param"] == field, value
    assert all(answer.status == 400 for answer in answers[3:]), "2^63, floats, strings are no such integer"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"model": "scripted\xff", "messages": []}',
        b'{"model": "scripted", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "scripted", "temperature": NaN}',
        b'{"model": "scripted", "temperature": Infinity}',
        b'{"model": "scripted", "temperature": 1e999}',
        b'{"model": "scripted", "unknown": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"model": "scripted", "messages": [{"role": "user", "content": ' + b'[{"a":' * 100_000,
    ],
)
@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_broken_json_is_400(path: str, body: bytes) -> None:
    answer = post(path, body)
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"


def test_what_is_broken_in_the_json_is_said_once() -> None:
    message = post(CHAT, b"{x").error["message"]
    assert message.startswith("The body is not valid JSON: ")
    assert "malformed" not in message


@pytest.mark.parametrize(
    ("fields", "entry"),
    [
        ({"metadata": {"fine": "x", "a": 1}}, "'metadata.a': expected `str`"),
        ({"metadata": {"fine": "x", "k" * 65: "x"}}, f"'metadata.{'k' * 64}': expected"),
        ({"logit_bias": {"5": 1, "abc": 1}}, "'logit_bias.abc': expected `int`"),
        ({"logit_bias": {"5": 1, "6": 101}}, "'logit_bias.6': expected"),
    ],
)
def test_the_entry_at_fault_is_named(fields: dict[str, Any], entry: str) -> None:
    error = post(CHAT, chat(**fields)).error
    assert error["message"].startswith(f"Invalid entry {entry}")
    assert (error["param"], error["code"]) == (next(iter(fields)), "invalid_value")


def test_what_the_engine_refuses_has_a_code() -> None:
    class Refusing(ScriptedEngine):
        def check(self, request: GenerateRequest) -> None:
            raise RequestError("no such token", param="logit_bias")

    error = post(CHAT, chat(logit_bias={"5": 1}), Refusing()).error
    assert (error["param"], error["code"]) == ("logit_bias", "invalid_value")


def test_a_large_body_is_413() -> None:
    answer = post(CHAT, b" " * (8 * 2**20 + 1))
    assert answer.status == 413
    assert answer.headers["connection"] == "close"


def test_an_unknown_model_is_404() -> None:
    for path, body in [(CHAT, chat(model="gpt-9")), (RESPONSES, responses(model="gpt-9"))]:
        answer = post(path, body)
        assert answer.status == 404
        assert (answer.error["code"], answer.error["param"]) == ("model_not_found", "model")


def test_a_prompt_too_long_is_told_in_the_names_of_the_api() -> None:
    long = "x" * 5000
    chat_long, responses_long, chat_limit, responses_limit = post_all(
        [
            (CHAT, chat(messages=[{"role": "user", "content": long}])),
            (RESPONSES, responses(input=long)),
            (CHAT, chat(max_completion_tokens=4096)),
            (RESPONSES, responses(max_output_tokens=4096)),
        ]
    )
    assert {a.error["code"] for a in (chat_long, responses_long, chat_limit)} == {"context_length_exceeded"}
    assert [a.error["param"] for a in (chat_long, responses_long)] == ["messages", "input"]
    assert [a.error["param"] for a in (chat_limit, responses_limit)] == ["max_completion_tokens", "max_output_tokens"]


def test_a_previous_response_is_not_found() -> None:
    answer = post(RESPONSES, {"model": "scripted", "previous_response_id": "resp_1"})
    assert answer.status == 400
    assert answer.error["code"] == "previous_response_not_found"
    assert answer.error["param"] == "previous_response_id"


def test_unknown_fields_and_nulls_are_ignored() -> None:
    nulls = dict.fromkeys(
        ["temperature", "top_p", "n", "stop", "seed", "logit_bias", "stream", "service_tier", "tools"]
    )
    for path, body in [
        (CHAT, chat(**nulls, prediction=None, verbosity="low", x=[[{}]])),
        (RESPONSES, responses(**nulls, client_metadata={}, include=["reasoning.encrypted_content"], image={})),
        (CHAT, chat(tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="none")),
        (RESPONSES, responses(tools=[{"type": "function", "name": "f"}, {"type": "web_search"}], tool_choice="none")),
    ]:
        assert post(path, body).status == 200


def test_chat_fields_reach_the_engine() -> None:
    engine = ScriptedEngine()
    fields = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 7,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "logit_bias": {"65": -100, "66": 2.5},
        "seed": 2**63 - 1,
        "n": 2,
        "stop": ["§", "¶"],
        "ignore_eos": True,
        "logprobs": True,
        "top_logprobs": 4,
    }
    assert post(CHAT, chat(**fields), engine).status == 200
    expected = SamplingParams(
        max_tokens=3,
        temperature=0.0,
        top_p=0.5,
        top_k=7,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={65: -100.0, 66: 2.5},
        seed=2**63 - 1,
        stop=("§", "¶"),
        ignore_eos=True,
        logprobs=4,
    )
    assert engine.requests[0].params == expected
    assert [request.params.seed for request in engine.requests] == [2**63 - 1, 0]


def test_what_is_said_about_the_service_reaches_the_engine() -> None:
    engine = ScriptedEngine()
    fields = {"service_tier": "ultrafast", "service_tier_overflow": "reject", "cache_salt": "s", "deadline_s": 50}
    fields["ignore_eos"] = True
    parts = [{"type": "text", "text": "Speed "}, {"type": "text", "text": "is"}]
    prediction = {"type": "content", "content": parts}
    post_all([(CHAT, chat(**fields, prediction=prediction)), (RESPONSES, responses(**fields)), (CHAT, chat())], engine)
    said = [(r.tier, r.overflow, bytes(r.prediction), r.cache_salt, r.deadline_s) for r in engine.requests]
    assert said == [
        ("ultrafast", "reject", b"Speed is", "s", 50.0),
        ("ultrafast", "reject", b"", "s", 50.0),
        ("default", None, b"", "", None),
    ]
    assert [request.params.ignore_eos for request in engine.requests] == [True, True, False]


def test_a_prediction_longer_than_the_context_is_cut() -> None:
    engine = ScriptedEngine()
    assert post(CHAT, chat(prediction={"type": "content", "content": "x" * 100_000}), engine).status == 200
    (request,) = engine.requests
    assert len(request.prompt_ids) + len(request.prediction) == engine.max_context


def test_usage_tells_of_caches_and_predictions() -> None:
    prediction = {"type": "content", "content": "Spend"}
    answer, streamed, response = post_all(
        [
            (CHAT, chat(n=2, prediction=prediction)),
            (CHAT, chat(n=2, prediction=prediction, stream=True, stream_options={"include_usage": True})),
            (RESPONSES, responses()),
        ]
    )
    usage = answer.json()["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": usage["prompt_tokens"] // 2}
    assert usage["completion_tokens_details"] == {
        "reasoning_tokens": 0,
        "accepted_prediction_tokens": 6,
        "rejected_prediction_tokens": 0,
    }
    assert streamed.events()[-2][1]["usage"] == usage
    usage = response.json()["usage"]
    assert usage["input_tokens_details"]["cached_tokens"] == usage["input_tokens"] // 2
    assert usage["output_tokens_details"] == {
        "reasoning_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    }


def test_defaults_are_those_of_the_api() -> None:
    engine = ScriptedEngine()
    body = {"model": "scripted", "messages": [USER]}
    post_all([(CHAT, body), (CHAT, body), (RESPONSES, {"model": "scripted", "input": "Hi"})], engine)
    for request in engine.requests:
        assert request.params == SamplingParams(temperature=1.0, seed=request.params.seed)
        assert request.tier == "default"
    assert len({request.params.seed for request in engine.requests}) == 3


def test_messages_become_what_the_template_takes() -> None:
    engine = ScriptedEngine()
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, {"type": "output_text", "text": "c"}]
    items = [
        {"role": "developer", "content": "Be quick."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "id": "msg_1", "status": "completed"},
        {"role": "user", "content": ""},
    ]
    reasoning = {"type": "reasoning", "summary": []}
    post_all(
        [(CHAT, chat(messages=items)), (RESPONSES, responses(input=[reasoning, *items], instructions="I"))], engine
    )
    expected = "<system>Be quick.<user>abc<assistant>no<user>"
    assert [bytes(r.prompt_ids).decode() for r in engine.requests] == [expected, "<system>I" + expected]


def test_stop_strings_do_not_appear() -> None:
    answer = post(CHAT, {"model": "scripted", "messages": [USER], "stop": "tier"})
    assert answer.json()["choices"][0]["message"]["content"] == "Speed is a "
    assert answer.json()["choices"][0]["finish_reason"] == "stop"


def test_choices_are_streamed_with_their_index() -> None:
    answer = post(CHAT, chat(n=3, stream=True, max_tokens=12, stream_options={"include_usage": True}))
    events = [data for _, data in answer.events()]
    assert events[-1] == "[DONE]"
    assert events[-2]["usage"]["completion_tokens"] == 36
    for index in range(3):
        mine = [c for event in events[:-2] for c in event["choices"] if c["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(c["delta"].get("content", "") for c in mine) == text_of(12)
        assert [c["finish_reason"] for c in mine][-1] == "length"
        assert mine[-1]["delta"] == {}


def test_streams_without_usage_have_no_usage_field() -> None:
    events = [data for _, data in post(CHAT, chat(stream=True)).events()]
    assert all("usage" not in event for event in events[:-1])


def test_a_response_repeats_its_request() -> None:
    answer = post(
        RESPONSES,
        responses(
            temperature=0.5,
            top_p=0.9,
            metadata={"a": "b"},
            reasoning={"effort": "low"},
            text={"verbosity": "low"},
            user="u",
            prompt_cache_key="k",
            store=True,
            parallel_tool_calls=False,
            instructions="I",
        ),
    ).json()
    assert answer["temperature"] == 0.5
    assert answer["top_p"] == 0.9
    assert answer["metadata"] == {"a": "b"}
    assert answer["reasoning"] == {"effort": "low", "summary": None}
    assert answer["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert (answer["user"], answer["prompt_cache_key"], answer["instructions"]) == ("u", "k", "I")
    assert answer["parallel_tool_calls"] is False
    assert answer["store"] is True


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_a_failure_in_mid_stream_is_told_in_the_stream(path: str) -> None:
    body = (chat if path == CHAT else responses)(stream=True, max_tokens=60, max_output_tokens=60)
    events = asyncio.run(broken_in_mid_stream(ScriptedEngine(paced=True), path, body, b"delta")).events()
    if path == CHAT:
        assert events[-1][1]["error"]["code"] == "server_error"
    else:
        assert [name for name, _ in events[-2:]] == ["error", "response.failed"]
        assert events[-2][1]["error"]["type"] == "server_error"
        failed = events[-1][1]["response"]
        assert failed["status"] == "failed"
        assert failed["error"]["code"] == "server_error"
        assert [data["sequence_number"] for _, data in events] == list(range(len(events)))


def test_impossible_tokens_have_a_logprob_that_json_can_say() -> None:
    item = TokenLogprob(65, float("-inf"), top=((66, float("-inf")),))
    (entry,) = logprob_entries(ByteTokenizer(), [item])
    assert entry == {
        "token": "A",
        "bytes": [65],
        "logprob": -9999.0,
        "top_logprobs": [{"token": "B", "bytes": [66], "logprob": -9999.0}],
    }


def test_the_tier_table() -> None:
    values = [None, "auto", "default", "scale", "flex", "priority", "fast", "ultrafast"]
    tiers = ["default", "default", "default", "default", "flex", "fast", "fast", "ultrafast"]
    assert [tier_of(value) for value in values] == tiers
    assert set(tiers) == set(TIERS)


def test_every_chunk_has_the_tier() -> None:
    events = [data for _, data in post(CHAT, chat(stream=True, service_tier="priority")).events()]
    assert {event["service_tier"] for event in events[:-1]} == {"fast"}
    events = [data for _, data in post(RESPONSES, responses(stream=True, service_tier="ultrafast")).events()]
    assert {e["response"]["service_tier"] for e in events if "response" in e} == {"ultrafast"}


def test_answers_are_plain_json() -> None:
    answer = post(CHAT, chat())
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body)["choices"][0]["message"]["content"] == text_of(3)
