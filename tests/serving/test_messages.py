"""``/v1/messages``: Anthropic's API, plain and streamed, on a scripted engine."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from support.asgi import Answer, client_of
from support.scripted_engine import ScriptedEngine, with_tiers

MESSAGES = [{"role": "user", "content": "Hi"}]
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def post(engine: ScriptedEngine, path: str = "/v1/messages", **fields: Any) -> Answer:
    async def ask() -> Answer:
        async with client_of(engine) as client:
            body = {"model": "scripted", "messages": MESSAGES} | ({"max_tokens": 500} if path == "/v1/messages" else {})
            given = {name: value for name, value in (body | fields).items() if value is not None}
            return await client.post(path, given)

    return asyncio.run(ask())


def prompt(engine: ScriptedEngine) -> str:
    return bytes(engine.requests[-1].prompt_ids).decode()


def streamed(engine: ScriptedEngine, **fields: Any) -> list[dict[str, Any]]:
    """The events, their order checked as Anthropic's SDK relies on it."""
    answer = post(engine, stream=True, **fields)
    assert answer.status == 200, answer.body
    events = []
    for name, data in answer.events():
        assert data["type"] == name
        events.append(data)
    kinds = [event["type"] for event in events if event["type"] != "ping"]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    index = -1
    is_open = False
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert not is_open
                index, is_open = index + 1, True
            case "content_block_delta" | "content_block_stop":
                assert is_open
                is_open = event["type"] == "content_block_delta"
            case _:
                continue
        assert event["index"] == index
    assert not is_open
    return events


def test_a_whole_answer() -> None:
    answer = post(ScriptedEngine("Fine."))
    assert answer.status == 200
    body = answer.json()
    assert body["id"].startswith("msg_")
    assert (body["type"], body["role"], body["model"]) == ("message", "assistant", "scripted")
    assert body["content"] == [{"type": "text", "text": "Fine."}]
    assert (body["stop_reason"], body["stop_sequence"]) == ("end_turn", None)
    usage = body["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == len("<user>Hi")
    assert (usage["output_tokens"], usage["cache_creation_input_tokens"]) == (5, 0)
    assert (usage["service_tier"], usage["speed"], usage["ultrafast_tier"]) == ("standard", "standard", "default")
    assert answer.headers["request-id"] == answer.headers["x-request-id"]


def test_a_stream_adds_up_to_the_whole() -> None:
    events = streamed(ScriptedEngine("Fine, thank you."))
    start = events[0]["message"]
    assert (start["content"], start["stop_reason"]) == ([], None)
    assert start["usage"]["output_tokens"] == 0
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert {delta["type"] for delta in deltas} == {"text_delta"}
    assert "".join(delta["text"] for delta in deltas) == "Fine, thank you."
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] == 16


@pytest.mark.parametrize(
    ("fields", "tier", "told"),
    [
        ({"service_tier": "auto"}, "default", ("standard", "standard")),
        ({"service_tier": "standard_only"}, "default", ("standard", "standard")),
        ({"speed": "fast"}, "fast", ("priority", "fast")),
        ({"speed": "standard"}, "default", ("standard", "standard")),
        ({"service_tier": "ultrafast"}, "ultrafast", ("priority", "fast")),
        ({"service_tier": "flex", "speed": "fast"}, "flex", ("standard", "standard")),
    ],
)
def test_tiers(fields: dict[str, Any], tier: str, told: tuple[str, str]) -> None:
    for stream in (None, True):
        engine = ScriptedEngine("Fine.")
        answer = post(engine, stream=stream, **fields)
        assert answer.headers["x-ultrafast-tier"] == tier
        usage = answer.events()[-2][1]["usage"] if stream else answer.json()["usage"]
        assert (usage["service_tier"], usage["speed"]) == told
        assert usage["ultrafast_tier"] == engine.requests[0].tier == tier


def test_an_unknown_tier_is_refused() -> None:
    answer = post(ScriptedEngine(), service_tier="warp")
    assert answer.status == 400
    assert "service_tier" in answer.json()["error"]["message"]


def test_a_tool_is_called() -> None:
    answer = post(ScriptedEngine(f"Let me see.{CALL}"), tools=[WEATHER])
    text, use = answer.json()["content"]
    assert text == {"type": "text", "text": "Let me see."}
    assert use.pop("id").startswith("toolu_")
    assert use == {"type": "tool_use", "name": "get_weather", "input": {"city": "Paris"}}
    assert answer.json()["stop_reason"] == "tool_use"


def test_a_streamed_call() -> None:
    events = streamed(ScriptedEngine(CALL + CALL), tools=[WEATHER])
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [(block["type"], block["name"], block["input"]) for block in starts] == [("tool_use", "get_weather", {})] * 2
    assert len({block["id"] for block in starts}) == 2
    for index in range(2):
        parts = [e["delta"] for e in events if e["type"] == "content_block_delta" and e["index"] == index]
        assert json.loads("".join(part["partial_json"] for part in parts)) == {"city": "Paris"}
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("choice", "has_grammar"),
    [({"type": "any"}, True), ({"type": "tool", "name": "get_weather"}, True), ({"type": "none"}, False)],
)
def test_choices_bind_the_output(choice: dict[str, Any], has_grammar: bool) -> None:
    engine = ScriptedEngine("Fine.")
    assert post(engine, tools=[WEATHER], tool_choice=choice).status == 200
    assert (engine.requests[0].grammar is not None) == has_grammar


def test_a_conversation_with_results() -> None:
    engine = ScriptedEngine("Cold.")
    conversation = [
        {"role": "user", "content": [{"type": "text", "text": "Weather?", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Ask.", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "-3"}]},
                {"type": "text", "text": "So?"},
            ],
        },
        {"role": "system", "content": "Be brief."},
    ]
    answer = post(engine, messages=conversation, system=[{"type": "text", "text": "Help."}], tools=[WEATHER])
    assert answer.status == 200, answer.body
    text = prompt(engine)
    for part in ("Help.", "Weather?", "I look.", '"city"', "Oslo", "-3", "So?", "Be brief."):
        assert part in text
    assert text.index("-3") < text.index("So?")


def test_an_error_of_a_tool_is_told() -> None:
    engine = ScriptedEngine("Oh.")
    use = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such city", "is_error": True}
    turns = [*MESSAGES, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    assert post(engine, messages=turns, tools=[WEATHER]).status == 200
    assert "Error: no such city" in prompt(engine)


def test_stop_sequences() -> None:
    body = post(ScriptedEngine("one two three"), stop_sequences=["four", " three"]).json()
    assert body["content"] == [{"type": "text", "text": "one two"}]
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", " three")


def test_limits() -> None:
    body = post(ScriptedEngine("0123456789"), max_tokens=4).json()
    assert (body["content"][0]["text"], body["stop_reason"]) == ("0123", "max_tokens")


def test_more_than_the_context_holds_means_up_to_its_end() -> None:
    engine = ScriptedEngine("0123456789" * 50)
    engine.max_context = 60
    body = post(engine, max_tokens=32_000).json()
    assert body["stop_reason"] == "model_context_window_exceeded"
    usage = body["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["output_tokens"] == 60


def test_counting() -> None:
    engine = ScriptedEngine()
    plain = post(engine, "/v1/messages/count_tokens").json()
    assert plain == {"input_tokens": len("<user>Hi")}
    with_tools = post(engine, "/v1/messages/count_tokens", tools=[WEATHER], system="Help.").json()
    assert with_tools["input_tokens"] > plain["input_tokens"] + len("get_weather")
    assert engine.requests == []


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"temperature": 1.5}, "temperature"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [*MESSAGES, {"role": "assistant", "content": "So"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
        ({"tools": [{"name": "x"}]}, "tools[0].input_schema"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": 5}}}}, "output_config.format"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], named: str) -> None:
    answer = post(ScriptedEngine(), **fields)
    assert answer.status == 400, answer.body
    body = answer.json()
    assert set(body) == {"type", "error", "request_id"}
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert named in body["error"]["message"]
    assert body["request_id"] == answer.headers["request-id"]


def test_other_errors_have_its_shape() -> None:
    def kind(answer: Answer) -> tuple[int, str]:
        return answer.status, answer.json()["error"]["type"]

    assert kind(post(ScriptedEngine(), model="other")) == (404, "not_found_error")
    failing = ScriptedEngine()
    failing.fail_next = RuntimeError("broken")
    assert kind(post(failing)) == (500, "api_error")
    long = post(ScriptedEngine(), messages=[{"role": "user", "content": "x" * 5000}])
    assert kind(long) == (400, "invalid_request_error")


def test_a_full_tier() -> None:
    async def ask() -> Answer:
        engine = ScriptedEngine(tiers=with_tiers(default={"slots": 1, "queue": 0}), paced=True)
        body = {"model": "scripted", "messages": MESSAGES, "max_tokens": 5}
        async with client_of(engine) as client, asyncio.TaskGroup() as tasks:
            first = tasks.create_task(client.post("/v1/messages", body))
            while not client.loop.stats()["running"]:
                await asyncio.sleep(0)
            refused = await client.post("/v1/messages", body)
            engine.allow(None)
            assert (await first).status == 200
            return refused

    refused = asyncio.run(ask())
    assert (refused.status, refused.json()["error"]["type"]) == (429, "rate_limit_error")
    assert int(refused.headers["retry-after"]) >= 1


def test_what_claude_code_sends() -> None:
    """The shape of its requests: fields of its own everywhere, tools of servers, thinking, a late system message."""
    engine = ScriptedEngine("Done.")
    engine.max_context = 200_000
    tools = [{**WEATHER, "name": f"tool_{n}", "description": "d" * 3000} for n in range(14)]
    answer = post(
        engine,
        "/v1/messages",
        max_tokens=32_000,
        stream=True,
        system=[{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in ("a", "b", "c")],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "context"}, {"type": "text", "text": "do it"}]},
            {"role": "system", "content": "reminder"},
        ],
        tools=[*tools, {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
        metadata={"user_id": "u"},
        thinking={"type": "adaptive", "display": "omitted"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        output_config={"effort": "high"},
    )
    assert answer.status == 200, answer.body
    names = [name for name, _ in answer.events()]
    assert names[-1] == "message_stop"
    assert "web_search" not in prompt(engine)
    assert "tool_13" in prompt(engine)


@pytest.mark.parametrize("path", ["/", "/api/hello"])
def test_somebody_is_here(path: str) -> None:
    async def ask() -> list[int]:
        async with client_of(ScriptedEngine()) as client:
            return [(await client.request(method, path)).status for method in ("HEAD", "GET")]

    assert asyncio.run(ask()) == [200, 200]


def test_threads_are_refused_in_the_words_that_make_clients_do_without() -> None:
    answer = post(ScriptedEngine(), thread={"type": "continue", "previous_message_id": "msg_1"})
    assert answer.status == 400
    details = answer.json()["error"]["details"]
    assert details == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
