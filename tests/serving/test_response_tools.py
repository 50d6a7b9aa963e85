"""What `/v1/responses` makes of tools and the choice among them, and which fields it finds wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.marked_chat import marked_engine
from support.response_requests import CLOCK, WEATHER, ask, planned, post, refused
from ultrafast.types import Tool, ToolChoice


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


def allowed(mode: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": list(tools)}


def test_functions_are_offered_and_what_only_others_can_run_is_not() -> None:
    nested = [{"type": "function", "name": "read", "strict": False}, {"type": "custom", "name": "raw"}]
    tools = [
        WEATHER,
        CLOCK,
        {"type": "web_search"},
        {"type": "image_generation", "size": 5},
        {"type": "namespace", "name": "disk", "description": "d", "tools": nested},
    ]
    plan = planned(ask(tools=tools, tool_choice="auto", parallel_tool_calls=False))
    assert list(plan.tools) == [
        Tool("weather", "of a city", WEATHER["parameters"], True),
        Tool("clock", "", {"type": "object"}, False),
        Tool("disk__read", "", {}, False),
    ]
    assert plan.choice == ToolChoice("auto", (), False)


def test_a_function_of_a_namespace_is_called_with_it() -> None:
    tools = [
        {"type": "namespace", "name": "disk", "tools": [{**CLOCK, "name": "read"}]},
        {**CLOCK, "name": "read"},
        {"type": "namespace", "name": "tape", "tools": [{**CLOCK, "name": "read"}]},
    ]
    replayed = {"type": "function_call", "call_id": "c", "name": "read", "namespace": "disk", "arguments": "{}"}
    engine = marked_engine("<call disk__read>{}</call><call tape__read>{}</call><call read>{}</call>")
    answer = post(ask([{"role": "user", "content": "x"}, replayed], tools=tools), engine).json()
    assert [(item["name"], item.get("namespace")) for item in answer["output"]] == [
        ("read", "disk"),
        ("read", "tape"),
        ("read", None),
    ]
    assert [tool.name for tool in engine.chat.planned[0].tools] == ["disk__read", "read", "tape__read"]
    assert engine.chat.planned[0].messages[1]["tool_calls"][0]["function"]["name"] == "disk__read"


def test_tools_of_the_conversation_are_on_offer_and_replace_older_ones() -> None:
    update = {"type": "additional_tools", "role": "developer", "tools": [{**CLOCK, "description": "new"}, WEATHER]}
    plan = planned(ask([update, {"role": "user", "content": "x"}], tools=[CLOCK]))
    assert [(tool.name, tool.description) for tool in plan.tools] == [("clock", "new"), ("weather", "of a city")]


def test_strictness_that_nobody_asked_for_gives_way() -> None:
    silent = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    assert planned(ask(tools=[silent])).tools[0].strict is True
    plan = planned(ask(tools=[silent, WEATHER]), marked_engine("fine", refuse_strict=["f"]))
    assert [tool.strict for tool in plan.tools] == [False, True]
    update = {"type": "additional_tools", "tools": [{**silent, "strict": True}]}
    overridden = ask([update, {"role": "user", "content": "x"}], tools=[silent])
    assert refused(overridden, marked_engine("fine", refuse_strict=["f"]))["param"] == "tools"
    error = refused(ask(tools=[{**silent, "strict": True}]), marked_engine("fine", refuse_strict=["f"]))
    assert error["param"] == "tools"


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "clock"}, ToolChoice("required", ("clock",), parallel=False)),
        (allowed("required", function("weather"), {"type": "web_search"}), ToolChoice("required", ("weather",))),
        (allowed("auto", function("clock")), ToolChoice("auto", ("clock",))),
        (allowed("auto", {"type": "web_search"}), ToolChoice("none")),
    ],
)
def test_a_choice_of_tools(choice: Any, meant: ToolChoice) -> None:
    assert planned(ask(tools=[WEATHER, CLOCK], tool_choice=choice)).choice == meant


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "no spaces"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "n" * 129}]}, "tools[0].name"),
        ({"tools": [{**CLOCK, "parameters": []}]}, "tools[0].parameters"),
        ({"tools": [{**CLOCK, "strict": "yes"}]}, "tools[0].strict"),
        ({"tools": [CLOCK, CLOCK]}, "tools[1].name"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [CLOCK, function("")]}]}, "tools[0].tools[1].name"),
        ({"tools": [{"type": "namespace", "name": "n"}]}, "tools[0].tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": {"name": "clock"}}, "tool_choice.type"),
        ({"tools": [CLOCK], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tools": [CLOCK], "tool_choice": {"type": "function", "name": "weather"}}, "tool_choice.name"),
        ({"tools": [CLOCK], "tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tools": [CLOCK], "tool_choice": allowed("any")}, "tool_choice.mode"),
        ({"tools": [CLOCK], "tool_choice": allowed("required")}, "tool_choice.tools"),
        ({"tools": [CLOCK], "tool_choice": allowed("auto", function("x"))}, "tool_choice.tools[0].name"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "bad name", "schema": {}}}}, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "n\n", "schema": {}}}}, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": []}}}, "text.format.schema"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"conversation": {"id": "c"}}, "conversation"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"service_tier": "warp"}, "service_tier"),
    ],
)  # fmt: skip
def test_a_bad_field_of_a_response_is_named(fields: dict[str, Any], param: str) -> None:
    assert refused(ask(**fields))["param"] == param


@pytest.mark.parametrize("where", ["input", "tools", "tool_choice", "text.format.schema"])
@pytest.mark.parametrize("levels", [110, *range(930, 990, 5)])
def test_what_is_nested_too_deeply_is_refused_and_not_found_out_later(where: str, levels: int) -> None:
    deep: Any = {"deep": 0}
    body = {
        "input": ask([{"role": "user", "content": "x", "extra": deep}]),
        "tools": ask(tools=[{**CLOCK, "parameters": deep}], tool_choice="none"),
        "tool_choice": ask(tools=[CLOCK], tool_choice={"type": "function", "name": "clock", "extra": deep}),
        "text.format.schema": ask(text={"format": {"type": "json_schema", "name": "n", "schema": deep}}),
    }[where]
    raw = json.dumps(body).replace('"deep": 0', '"deep": ' + "[" * levels + "]" * levels)
    assert refused(raw.encode(), marked_engine("x"))["param"] in (where, None)  # None: it could not even be read
