"""Chat Completions: tools, formats, histories with calls, thoughts; and what is refused by which name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from support.asgi import Answer, client_of
from support.marked_chat import marked_engine
from support.scripted_engine import ScriptedEngine
from ultrafast.types import OutputFormat, Tool, ToolChoice

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "Hi"}
WEATHER = {"name": "get_weather", "description": "Tells it.", "parameters": {"type": "object"}, "strict": True}
TIME = {"name": "get_time"}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": TIME}]
OFFERED = [Tool("get_weather", "Tells it.", {"type": "object"}, True), Tool("get_time")]
ONE_CALL = '<call get_weather>{"city":"Bern"}</call>'
TWO_CALLS = ONE_CALL + "<call get_time>{}</call>"


def ask(body: dict[str, Any], engine: Any) -> Answer:
    async def main() -> Answer:
        async with asyncio.timeout(30), client_of(engine) as client:
            return await client.post(CHAT, {"model": "scripted", "messages": [USER], **body})

    return asyncio.run(main())


def choice_of(script: str, **body: Any) -> dict[str, Any]:
    answer = ask(body, marked_engine(script))
    assert answer.status == 200, answer.body
    (choice,) = answer.json()["choices"]
    result: dict[str, Any] = choice
    return result


def deltas_of(script: str, **body: Any) -> list[dict[str, Any]]:
    """Of the only choice of each chunk."""
    answer = ask({"stream": True, **body}, marked_engine(script))
    assert answer.status == 200, answer.body
    events = [data for _, data in answer.events()]
    assert events[-1] == "[DONE]"
    heads = {tuple(e[name] for name in ("id", "object", "created", "model", "service_tier")) for e in events[:-1]}
    assert len(heads) == 1, "every chunk repeats them"
    return [choice for event in events[:-1] for choice in event["choices"]]


def planned(body: dict[str, Any]) -> Any:
    """What the chat format was asked to plan."""
    engine = marked_engine("Hi.")
    answer = ask(body, engine)
    assert answer.status == 200, answer.body
    return engine.chat.planned[-1]


def test_calls_are_answered_whole() -> None:
    choice = choice_of(TWO_CALLS, tools=TOOLS)
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert message["content"] is None
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "get_weather", "arguments": '{"city":"Bern"}'},
        {"name": "get_time", "arguments": "{}"},
    ]
    assert {call["type"] for call in message["tool_calls"]} == {"function"}
    ids = [call["id"] for call in message["tool_calls"]]
    assert all(call_id.startswith("call_") for call_id in ids)
    assert len(set(ids)) == 2


def test_text_before_a_call_stays() -> None:
    message = choice_of("Let me see." + ONE_CALL, tools=TOOLS)["message"]
    assert message["content"] == "Let me see."
    assert len(message["tool_calls"]) == 1


def test_an_answer_without_calls_has_no_calls() -> None:
    choice = choice_of("Hi.", tools=TOOLS)
    assert choice["message"] == {"role": "assistant", "content": "Hi.", "refusal": None}
    assert choice["finish_reason"] == "stop"


def test_calls_are_streamed() -> None:
    choices = deltas_of("So: " + TWO_CALLS, tools=TOOLS)
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert choices[-1] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "tool_calls"}
    assert "".join(c["delta"].get("content", "") for c in choices) == "So: "
    calls = [call for c in choices for call in c["delta"].get("tool_calls", ())]
    begins = [call for call in calls if "id" in call]
    assert [(c["index"], c["type"], c["function"]) for c in begins] == [
        (0, "function", {"name": "get_weather", "arguments": ""}),
        (1, "function", {"name": "get_time", "arguments": ""}),
    ]
    pieces = [call for call in calls if "id" not in call]
    assert all(set(call) == {"index", "function"} and set(call["function"]) == {"arguments"} for call in pieces)
    joined = ["".join(c["function"]["arguments"] for c in pieces if c["index"] == index) for index in (0, 1)]
    assert joined == ['{"city":"Bern"}', "{}"]


def test_each_choice_has_a_parser_of_its_own() -> None:
    answer = ask({"n": 2, "tools": TOOLS, "stream": True}, marked_engine(ONE_CALL, "<think>Hm</think>Hi."))
    choices = [c for _, data in answer.events()[:-1] for c in data["choices"]]
    ends = {c["index"]: c["finish_reason"] for c in choices if c["finish_reason"]}
    assert ends == {0: "tool_calls", 1: "stop"}
    assert "".join(c["delta"].get("content", "") for c in choices if c["index"] == 1) == "Hi."
    assert all(c["index"] == 0 for c in choices if "tool_calls" in c["delta"])


def test_a_call_that_the_limit_cuts_is_told_as_far_as_it_came() -> None:
    limit = len("<call get_weather>{")
    choice = choice_of(ONE_CALL, tools=TOOLS, max_tokens=limit)
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": "{"}
    assert deltas_of(ONE_CALL, tools=TOOLS, max_tokens=limit)[-1]["finish_reason"] == "length"


def test_functions_are_answered_in_their_older_form() -> None:
    choice = choice_of(ONE_CALL, functions=[WEATHER, TIME])
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["content"] is None
    assert choice["message"]["function_call"] == {"name": "get_weather", "arguments": '{"city":"Bern"}'}
    assert "tool_calls" not in choice["message"]
    choices = deltas_of(ONE_CALL, functions=[WEATHER, TIME])
    calls = [c["delta"]["function_call"] for c in choices if "function_call" in c["delta"]]
    assert calls[0] == {"name": "get_weather", "arguments": ""}
    assert "".join(call["arguments"] for call in calls) == '{"city":"Bern"}'
    assert choices[-1]["finish_reason"] == "function_call"


def test_thoughts_are_told_apart() -> None:
    engine = marked_engine("<think>Hm, hm.</think>Hi.")
    answer = ask({}, engine).json()
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "content": "Hi.",
        "refusal": None,
        "reasoning_content": "Hm, hm.",
    }
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == len("Hm, hm.")
    answer = ask({"stream": True, "stream_options": {"include_usage": True}}, engine)
    events = [data for _, data in answer.events()]
    deltas = [c["delta"] for e in events[:-1] for c in e["choices"]]
    assert "".join(d.get("reasoning_content", "") for d in deltas) == "Hm, hm."
    assert "".join(d.get("content", "") for d in deltas) == "Hi."
    assert events[-2]["usage"]["completion_tokens_details"]["reasoning_tokens"] == len("Hm, hm.")
    assert all(event["usage"] is None for event in events[:-2])


@pytest.mark.parametrize(
    ("body", "choice"),
    [
        ({}, ToolChoice()),
        ({"tool_choice": None}, ToolChoice()),
        ({"tool_choice": "auto", "parallel_tool_calls": False}, ToolChoice(parallel=False)),
        ({"tool_choice": "none"}, ToolChoice("none")),
        ({"tool_choice": "required"}, ToolChoice("required")),
        (
            {"tool_choice": {"type": "function", "function": {"name": "get_time"}}},
            ToolChoice("required", ("get_time",), parallel=False),
        ),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "required", "tools": [TOOLS[1], {"type": "mcp"}, TOOLS[1]]},
                }
            },
            ToolChoice("required", ("get_time",)),
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "mcp"}]}}},
            ToolChoice("none"),
        ),
    ],
)
def test_tools_and_choices_reach_the_plan(body: dict[str, Any], choice: ToolChoice) -> None:
    plan = planned({"tools": [*TOOLS, {"type": "web_search"}, {"type": "custom", "custom": {"name": "c"}}], **body})
    assert plan.tools == OFFERED
    assert plan.choice == choice


@pytest.mark.parametrize(
    ("function_call", "choice"),
    [
        (None, ToolChoice(parallel=False)),
        ("none", ToolChoice("none")),
        ({"name": "get_time"}, ToolChoice("required", ("get_time",), parallel=False)),
    ],
)
def test_functions_and_their_choice_reach_the_plan(function_call: Any, choice: ToolChoice) -> None:
    plan = planned({"functions": [WEATHER, TIME], "function_call": function_call})
    assert (plan.tools, plan.choice) == (OFFERED, choice)


@pytest.mark.parametrize(
    ("sent", "output"),
    [
        (None, OutputFormat()),
        ({"type": "text"}, OutputFormat()),
        ({"type": "json_object"}, OutputFormat("json_object")),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, OutputFormat("json_object")),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "array"}, "strict": True}},
            OutputFormat("json_schema", {"type": "array"}),
        ),
    ],
)
def test_the_format_reaches_the_plan(sent: Any, output: OutputFormat) -> None:
    assert planned({"response_format": sent}).output == output


def test_a_history_with_calls_reaches_the_plan() -> None:
    call = {"id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Bern"}'}}
    parsed = {"id": "call_b", "type": "function", "function": {"name": "get_time", "arguments": {"zone": "ü"}}}
    custom = {"id": "call_c", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    messages = [
        {"role": "developer", "content": "Be quick."},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call, parsed, custom], "reasoning_content": "Hm."},
        {
            "role": "tool",
            "tool_call_id": "call_b",
            "content": [{"type": "text", "text": "12"}, {"type": "text", "text": "h"}],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "rain"},
        {"role": "assistant", "content": "Rain.", "tool_calls": []},
    ]
    assert planned({"messages": messages}).messages == [
        {"role": "system", "content": "Be quick."},
        USER,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                call,
                {**parsed, "function": {"name": "get_time", "arguments": '{"zone": "ü"}'}},
                {"id": "call_c", "type": "function", "function": {"name": "shell", "arguments": '{"input": "ls"}'}},
            ],
            "reasoning_content": "Hm.",
        },
        {"role": "tool", "tool_call_id": "call_b", "content": "12h"},
        {"role": "tool", "tool_call_id": "call_a", "content": "rain"},
        {"role": "assistant", "content": "Rain."},
    ]


def test_a_history_of_functions_becomes_one_of_tools() -> None:
    called = {"name": "f", "arguments": "{}"}
    messages = [
        {"role": "assistant", "function_call": called},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": "", "function_call": called},
        {"role": "function", "name": "f", "content": "2"},
    ]
    first, one, second, two = planned({"messages": messages}).messages
    assert one == {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "1"}
    assert two == {"role": "tool", "tool_call_id": second["tool_calls"][0]["id"], "content": "2"}
    assert one["tool_call_id"] != two["tool_call_id"]


def test_calls_without_ids_get_their_own() -> None:
    calls = [{"function": {"name": name, "arguments": "{}"}} for name in "fg"]
    (message,) = planned({"messages": [{"role": "assistant", "tool_calls": calls}]}).messages
    assert len({call["id"] for call in message["tool_calls"]}) == 2


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"properties": value}
    return value


def with_history(*messages: dict[str, Any]) -> dict[str, Any]:
    called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {"messages": [{"role": "assistant", "tool_calls": [called]}, *messages]}


FORCED_CUSTOM = {"type": "custom", "custom": {"name": "c"}}
ALLOWED_NONE = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}
ALLOWED_ELSE = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "auto", "tools": [TOOLS[0], {"type": "function", "function": {"name": "g"}}]},
}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [TOOLS[0], {"function": TIME}]}, "tools[1].type"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a\n"}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": "{}"}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]}, "tools[0].function.strict"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].function.name"),
        ({"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(129)]}, "tools"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": 5}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {}}, "tool_choice.type"),
        ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice.function.name"),
        ({"tools": TOOLS, "tool_choice": FORCED_CUSTOM}, "tool_choice.type"),
        ({"tools": TOOLS, "tool_choice": ALLOWED_NONE}, "tool_choice.allowed_tools.tools"),
        ({"tools": TOOLS, "tool_choice": ALLOWED_ELSE}, "tool_choice.allowed_tools.tools[1].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"functions": [{}]}, "functions[0].name"),
        ({"functions": [TIME, TIME]}, "functions[1].name"),
        ({"functions": [TIME], "tools": TOOLS}, "functions"),
        ({"functions": [TIME], "function_call": {"name": "g"}}, "function_call.name"),
        ({"functions": [TIME], "function_call": "required"}, "function_call"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": []}}},
            "response_format.json_schema.schema",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": nested(500)}}]}, "tools"),
        ({"functions": [{"name": "f", "parameters": nested(500)}]}, "functions"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": nested(500)}}},
            "response_format.json_schema.schema",
        ),
        (
            {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": nested(500)}}]},
            "messages[0].function_call.arguments",
        ),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"verbosity": "loud"}, "verbosity"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"audio": {"voice": "alloy"}}, "audio"),
        (with_history({"role": "tool", "content": "x"}), "messages[1].tool_call_id"),
        (with_history({"role": "tool", "tool_call_id": "d", "content": "x"}), "messages[1].tool_call_id"),
        (with_history({"role": "tool", "tool_call_id": "c"}), "messages[1].content"),
        (
            with_history({"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url", "image_url": {}}]}),
            "messages[1].content[0]",
        ),
        (with_history({"role": "function", "content": "x"}), "messages[1].name"),
        (with_history({"role": "function", "name": "g", "content": "x"}), "messages[1].name"),
        (with_history({"role": "assistant", "audio": {"id": "a"}}), "messages[1].audio"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "messages[0].tool_calls[0].function"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}, {"type": "image_url"}]}]},
            "messages[0].content[1]",
        ),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str) -> None:
    answer = ask(body, marked_engine("Hi."))
    assert answer.status == 400
    assert answer.error["param"] == param
    assert answer.error["code"] in ("invalid_value", "missing_required_parameter", "unsupported_parameter")


@pytest.mark.parametrize(
    ("body", "param"),
    [({"tools": TOOLS}, "tools"), ({"functions": [WEATHER]}, "functions")],
)
def test_a_schema_beyond_us_is_refused_by_its_field(body: dict[str, Any], param: str) -> None:
    answer = ask(body, marked_engine("Hi.", refuse_strict=["get_weather"]))
    assert (answer.status, answer.error["param"]) == (400, param)


def test_what_has_no_effect_is_accepted() -> None:
    body = {
        "reasoning_effort": "xhigh",
        "verbosity": "high",
        "store": True,
        "metadata": {"a": "b"},
        "user": "u",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "modalities": ["text"],
        "stream_options": {"include_obfuscation": True},
        "web_search_options": {},
        "parallel_tool_calls": True,
    }
    answer = ask(body, marked_engine("Hi."))
    assert answer.status == 200
    assert answer.json()["metadata"] == {"a": "b"}


def test_logprobs_stay_with_the_text() -> None:
    choice = choice_of("<think>Hm</think>Hi", logprobs=True)
    assert choice["logprobs"]["refusal"] is None
    assert choice_of("Hi")["logprobs"] is None
    tokens = "".join(
        e["token"] for c in deltas_of("Hi", logprobs=True) for e in (c["logprobs"] or {}).get("content", ())
    )
    assert tokens == "Hi"


def test_the_answer_is_what_json_readers_expect() -> None:
    answer = ask({"tools": TOOLS}, marked_engine('<call get_weather>{"city": "Zürich\\n🚀"}</call>'))
    arguments = answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"city": "Zürich\n🚀"}


def test_the_calls_of_a_model_are_told_apart_from_its_text() -> None:
    script = 'So.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bern"}}\n</tool_call>'
    engine = ScriptedEngine(script)
    whole = ask({"tools": TOOLS}, engine).json()["choices"][0]
    assert whole["finish_reason"] == "tool_calls"
    (call,) = whole["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Bern"}
    assert whole["message"]["content"].strip() == "So."
    assert b"get_weather" in bytes(engine.requests[0].prompt_ids), "the model is told of its tools"
    assert ask({"tools": TOOLS, "tool_choice": "none"}, engine).json()["choices"][0]["message"]["content"] == script
