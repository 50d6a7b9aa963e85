"""What `/v1/responses` makes of its input, its tools and its options, and what it answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from support.asgi import Answer, broken_in_mid_stream, client_of
from support.marked_chat import marked_engine
from support.response_events import check_events
from support.response_requests import CLOCK, PATH, WEATHER, ask, planned, post, refused, streamed
from support.scripted_engine import ScriptedEngine, with_tiers
from ultrafast.types import OutputFormat

UNFINISHED = {"type": "json_schema", "name": "n"}


def parts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "input_text", "text": text} for text in texts]


# ---- input ------------------------------------------------------------------------------------------------------


def test_every_kind_of_item_reaches_the_template_in_its_place() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'}
    messages = planned(
        ask(
            [
                {"role": "developer", "content": "Be kind.", "id": "x", "phase": None},
                {"type": "message", "role": "user", "content": parts("Oslo", "?")},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Ask."}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
                {**call, "caller": {"type": "direct"}, "status": "completed"},
                {**call, "call_id": "c2", "name": "clock", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c2", "output": parts("no", "on")},
                {"type": "function_call_output", "call_id": "c1", "output": "rain"},
                {"type": "compaction", "encrypted_content": "opaque"},
                {"type": "configuration_update", "reasoning": {"effort": "low"}},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "So it rains."}]},
                {"type": "custom_tool_call", "call_id": "c3", "name": "shell", "input": 'say "hi"'},
                {"type": "custom_tool_call_output", "call_id": "c3", "output": "hi"},
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
                {"role": "user", "content": "Well?"},
            ],
            instructions="Be brief.",
        )
    ).messages  # fmt: skip

    def calls(*of: tuple[str, str, str]) -> list[dict[str, Any]]:
        return [{"id": c, "type": "function", "function": {"name": n, "arguments": a}} for c, n, a in of]

    oslo, custom = '{"city": "Oslo"}', '{"input": "say \\"hi\\""}'
    assert messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Oslo?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Ask.",
            "tool_calls": calls(("c1", "weather", oslo), ("c2", "clock", "{}")),
        },
        {"role": "tool", "tool_call_id": "c2", "content": "noon"},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "So it rains.",
            "tool_calls": calls(("c3", "shell", custom)),
        },
        {"role": "tool", "tool_call_id": "c3", "content": "hi"},
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": "Well?"},
    ]


def test_a_call_that_was_cut_is_not_shown_again() -> None:
    cut = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a', "status": "incomplete"}
    assert planned(ask([{"role": "user", "content": "a"}, cut, {"role": "user", "content": "b"}])).messages == [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
    ]


def test_an_output_of_a_call_that_was_cut_is_refused() -> None:
    cut = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a', "status": "incomplete"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    assert refused(ask([cut, output]))["param"] == "input[1].call_id"


def test_thoughts_between_text_and_call_go_with_the_call() -> None:
    items = [
        {"role": "assistant", "content": "Hm."},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Call."}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"role": "user", "content": "x"},
    ]
    first, second, _ = planned(ask(items)).messages
    assert first == {"role": "assistant", "content": "Hm."}
    assert (second["reasoning_content"], len(second["tool_calls"])) == ("Call.", 1)


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "mcp_call", "id": "m"}, "type"),
        ({"type": 5}, "type"),
        ({"type": None, "content": "x"}, "role"),
        ({"type": "message", "role": "user"}, "content"),
        ({"type": "message", "role": "tool", "content": "x"}, "role"),
        ({"role": "user", "content": [{"type": "input_file"}]}, "content[0]"),
        ({"role": "user", "content": "x", "id": 5}, "id"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "call_id"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}, "arguments"),
        ({"type": "function_call", "call_id": "c", "name": 1, "arguments": ""}, "name"),
        ({"type": "function_call_output", "call_id": "nowhere", "output": "x"}, "call_id"),
        ({"type": "function_call_output", "call_id": "c0", "output": 5}, "output"),
        ({"type": "function_call_output", "call_id": "c0", "output": [{"type": "input_image"}]}, "output[0]"),
        ({"type": "custom_tool_call_output", "call_id": "c0", "output": "of another kind of call"}, "call_id"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "f"}, "input"),
        ({"type": "reasoning", "summary": "x"}, "summary"),
        ({"type": "reasoning", "content": [{"text": "x"}]}, "content[0].type"),
        ({"type": "item_reference", "id": "nowhere"}, "id"),
        ({"id": "nowhere"}, "id"),
        ({"type": "additional_tools", "tools": [{"type": "function"}]}, "tools[0].name"),
        ({"type": "configuration_update", "text": {"format": UNFINISHED}}, "text.format.schema"),
        ({"type": "configuration_update", "text": {"format": {"type": "xml"}}}, "text.format.type"),
    ],
)  # fmt: skip
def test_a_bad_item_is_named(item: Any, param: str) -> None:
    before = {"type": "function_call", "call_id": "c0", "name": "f", "arguments": "{}"}
    assert refused(ask([{"role": "user", "content": "x"}, before, item]))["param"] == f"input[2].{param}"


def test_a_reference_repeats_an_item() -> None:
    first = {"role": "user", "content": "again", "id": "msg_a"}
    contents = [m["content"] for m in planned(ask([first, {"id": "msg_a"}])).messages]
    assert contents == ["again", "again"]


def test_an_input_of_settings_alone_is_no_conversation() -> None:
    assert refused(ask([{"type": "configuration_update", "reasoning": {"effort": "low"}}]))["param"] == "input"


# ---- format and options ------------------------------------------------------------------------------------------


def test_the_format_of_the_text() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    named = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    assert planned(ask()).output == OutputFormat()
    assert planned(ask(text={"format": {"type": "json_object"}})).output == OutputFormat("json_object")
    engine = marked_engine("{}")
    assert planned(ask(text={"format": named, "verbosity": "low"}), engine).output == OutputFormat(
        "json_schema", schema
    )
    assert post(ask(text={"format": named, "verbosity": "low"}), engine).json()["text"] == {
        "format": named,
        "verbosity": "low",
    }


def test_the_format_can_change_within_the_conversation() -> None:
    update = {"type": "configuration_update", "text": {"format": {"type": "json_object"}}}
    conversation = [{"role": "user", "content": "x"}, update]
    assert planned(ask(conversation)).output == OutputFormat("json_object")
    assert planned(ask(conversation, text={"format": {"type": "text"}})).output == OutputFormat()


def test_what_is_off_is_no_reason_to_refuse() -> None:
    off: dict[str, Any] = {
        "background": False,
        "conversation": None,
        "prompt": None,
        "context_management": [],
        "moderation": {},
    }
    more = {"stream_options": {"include_obfuscation": False}, "client_metadata": {"a": 1}, "max_tool_calls": 3}
    assert post(ask(**off, **more, prompt_cache_options={"mode": "auto", "ttl": "30m"})).status == 200


@pytest.mark.parametrize("sent", [None, "auto", "default", "scale", "flex", "fast", "priority", "ultrafast"])
def test_a_terminal_answer_names_a_concrete_tier(sent: str | None) -> None:
    served = {"fast": "fast", "priority": "fast", "flex": "flex", "ultrafast": "ultrafast"}.get(sent or "", "default")
    _, last = streamed(ask(service_tier=sent), ScriptedEngine("x"))
    assert last["service_tier"] == served


def test_a_downgraded_answer_says_so() -> None:
    engine = ScriptedEngine("x", tiers=with_tiers(fast={"slots": 0}))
    assert post(ask(service_tier="fast"), engine).json()["service_tier"] == "default"


# ---- output -----------------------------------------------------------------------------------------------------

SCRIPT = '<think>Hm, 速い.</think>Let me see 🚀.<call weather>{"city": "Oslo"}</call><call clock>{}</call>'


def test_thoughts_text_and_calls_become_items_in_their_order() -> None:
    _, last = streamed(ask(tools=[WEATHER, CLOCK]), marked_engine(SCRIPT))
    assert [item["type"] for item in last["output"]] == ["reasoning", "message", "function_call", "function_call"]
    thought, message, weather, clock = last["output"]
    assert thought["summary"] == []
    assert thought["content"] == [{"type": "reasoning_text", "text": "Hm, 速い."}]
    assert message["content"][0]["text"] == "Let me see 🚀."
    assert (weather["name"], json.loads(weather["arguments"])) == ("weather", {"city": "Oslo"})
    assert len({item["id"] for item in last["output"]}) == 4
    assert weather["call_id"] != clock["call_id"]
    assert [item["id"].split("_")[0] for item in last["output"]] == ["rs", "msg", "fc", "fc"]
    assert last["status"] == "completed"
    assert last["usage"]["output_tokens_details"]["reasoning_tokens"] == len("Hm, 速い.".encode())
    whole = post(ask(tools=[WEATHER, CLOCK]), marked_engine(SCRIPT)).json()
    assert [_without_ids(item) for item in whole["output"]] == [_without_ids(item) for item in last["output"]]
    assert whole["usage"] == last["usage"]


def _without_ids(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in ("id", "call_id")}


def test_an_answer_may_be_cut_anywhere() -> None:
    length = len(SCRIPT.encode())
    bodies = [ask(tools=[WEATHER, CLOCK], max_output_tokens=limit, stream=True) for limit in range(1, length + 1)]

    async def main() -> list[Answer]:
        async with asyncio.timeout(60), client_of(marked_engine(SCRIPT)) as client:
            return await asyncio.gather(*(client.post(PATH, body) for body in bodies))

    for limit, answer in enumerate(asyncio.run(main()), 1):
        last = check_events([event for _, event in answer.events()])
        is_whole = limit == length
        assert last["status"] == ("completed" if is_whole else "incomplete"), limit
        assert last["incomplete_details"] == (None if is_whole else {"reason": "max_output_tokens"})
        assert (last["completed_at"] is None) is not is_whole
        assert [item["status"] for item in last["output"][:-1]] == ["completed"] * (len(last["output"]) - 1)
        for item in last["output"]:
            if item["type"] == "function_call" and item["status"] == "completed":
                json.loads(item["arguments"])


def test_a_cut_call_is_incomplete_and_not_said_to_be_done() -> None:
    engine = marked_engine('<call weather>{"city": "Oslo"}</call>')
    events, last = streamed(ask(tools=[WEATHER], max_output_tokens=20), engine)
    assert last["status"] == last["output"][0]["status"] == "incomplete"
    assert "response.function_call_arguments.done" not in [event["type"] for event in events]


def test_an_answer_of_nothing_is_an_empty_message() -> None:
    _, last = streamed(ask(), marked_engine("<think></think>"))
    assert [item["content"][0]["text"] for item in last["output"]] == [""]


def test_logprobs_come_with_the_text() -> None:
    body = ask(include=["message.output_text.logprobs"], top_logprobs=2)
    _, last = streamed(body, ScriptedEngine("héy"))
    entries = last["output"][0]["content"][0]["logprobs"]
    assert [entry["bytes"] for entry in entries] == [[byte] for byte in "héy".encode()]
    assert {len(entry["top_logprobs"]) for entry in entries} == {2}


def test_a_stream_that_fails_ends_with_both_an_error_and_a_failed_response() -> None:
    engine = marked_engine("Hello", paced=True)
    answer = asyncio.run(broken_in_mid_stream(engine, PATH, ask(stream=True), b"output_text.delta"))
    events = [event for _, event in answer.events()]
    last = check_events(events)
    assert [event["type"] for event in events[-3:]] == [
        "response.output_item.done",
        "error",
        "response.failed",
    ]
    error = events[-2]["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (last["status"], last["error"]) == ("failed", {"code": "server_error", "message": error["message"]})
    assert last["service_tier"] == "default"


# ---- truncation -------------------------------------------------------------------------------------------------


def long_conversation(num_turns: int) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = [{"role": "developer", "content": "Rules."}]
    for turn in range(num_turns):
        turns += [
            {"role": "user", "content": f"question {turn} " + "x" * 100},
            {"type": "function_call", "call_id": f"c{turn}", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{turn}", "output": "y" * 100},
        ]
    return [*turns, {"role": "user", "content": "the last"}]


def test_what_does_not_fit_is_refused_unless_it_may_be_cut() -> None:
    for truncation in (None, "disabled"):
        error = refused(ask(long_conversation(30), truncation=truncation))
        assert (error["code"], error["param"]) == ("context_length_exceeded", "input")


@pytest.mark.parametrize("limit", range(1, 300, 40))
def test_truncation_drops_the_oldest_and_no_more_than_it_must(limit: int) -> None:
    engine = ScriptedEngine()
    body = ask(long_conversation(30), truncation="auto", max_output_tokens=limit, instructions="Be brief.")
    answer = post(body, engine)
    assert answer.status == 200
    prompt = bytes(engine.requests[0].prompt_ids).decode()
    assert prompt.startswith("<system>Be brief.<system>Rules.<")
    assert prompt.endswith("<user>the last")
    assert "question 29" in prompt
    assert "question 0" not in prompt
    assert engine.max_context - 250 < len(prompt) + limit <= engine.max_context
    assert answer.json()["truncation"] == "auto"


def test_truncation_keeps_no_output_without_its_call() -> None:
    engine = marked_engine("ok")
    engine.max_context = 250
    messages = planned(ask(long_conversation(3), truncation="auto", max_output_tokens=1), engine).messages
    called = {call["id"] for message in messages for call in message.get("tool_calls", ())}
    assert {message["tool_call_id"] for message in messages if message["role"] == "tool"} <= called
    assert messages[-1]["content"] == "the last"


def test_what_is_too_long_by_itself_is_refused_in_any_case() -> None:
    for fields in ({"input": "x" * 5000}, {"input": "x", "max_output_tokens": 5000}):
        error = refused(ask(truncation="auto") | fields)
        assert error["code"] == "context_length_exceeded"


# ---- warming up -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"generate": False}, {"prompt_cache_options": {"prewarm": True}}])
def test_a_warm_up_computes_the_prompt_and_says_nothing(fields: dict[str, Any]) -> None:
    engine = ScriptedEngine()
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]}
    events, last = streamed(ask([developer], max_output_tokens=500, **fields), engine)
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.completed"]
    assert (last["output"], last["status"]) == ([], "completed")
    assert last["usage"]["input_tokens"] == len(engine.requests[0].prompt_ids)
    assert last["usage"]["output_tokens"] == 0
    assert engine.requests[0].params.max_tokens == 1


def test_a_warm_up_never_fails_for_what_only_an_answer_needs() -> None:
    full = ScriptedEngine(tiers=with_tiers(flex={"slots": 0}))
    assert post({"model": "scripted", "generate": False}).json()["output"] == []
    assert post(ask("x" * 9000, generate=False)).json()["status"] == "completed"
    answer = post(ask("x", generate=False, service_tier="flex"), full).json()
    assert (answer["status"], answer["service_tier"]) == ("completed", "flex")
    assert refused(ask("x", generate=False, tool_choice="maybe"))["param"] == "tool_choice"
