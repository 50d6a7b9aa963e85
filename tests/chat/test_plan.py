"""What a plan makes of tools and choices, for a model whose template knows no tools."""

from __future__ import annotations

import re
from typing import Any

import pytest

from support.answers import parse
from ultrafast.chat.answer import PlainParser
from ultrafast.chat.plan import ChatFormat
from ultrafast.errors import RequestError
from ultrafast.types import AnswerEnd, CallArguments, CallBegin, CallEnd, Text, Tool, ToolChoice

WEATHER = Tool("get_weather", "The weather of a place.", {"type": "object", "properties": {"city": {"type": "string"}}})
ADD = Tool("add", "", {"type": "object"})
HELLO = [{"role": "user", "content": "Hello!"}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>'


def call_of(name: str, arguments: str, id: str = "call_1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_tools_are_described_in_the_system_message() -> None:
    plan = ChatFormat(None).plan(HELLO, tools=[WEATHER, ADD])
    system, user = plan.messages
    assert system["role"] == "system"
    assert '{"name": "get_weather", "description": "The weather of a place.", "parameters": ' in system["content"]
    assert "<tool_call>" in system["content"]
    assert (user, plan.tools) == (HELLO[0], None)
    own = [{"role": "system", "content": "Be brief."}, *HELLO]
    first = ChatFormat(None).plan(own, tools=[WEATHER, ADD]).messages[0]
    assert first["content"] == "Be brief.\n\n" + system["content"]


def test_calls_and_results_become_plain_messages() -> None:
    messages = [
        *HELLO,
        {
            "role": "assistant",
            "content": "I add.",
            "tool_calls": [call_of("add", '{"x": 1}'), call_of("add", "{}", "call_2")],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
        {"role": "tool", "tool_call_id": "call_2", "content": "4"},
        {"role": "assistant", "content": None, "tool_calls": [call_of("add", "{}")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "5"},
        {"role": "user", "content": "Thanks."},
    ]
    empty = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    assert ChatFormat(None).plan(messages).messages == [
        *HELLO,
        {"role": "assistant", "content": f"I add.\n{CALL}\n{empty}"},
        {
            "role": "user",
            "content": "<tool_response>\n3\n</tool_response>\n<tool_response>\n4\n</tool_response>",
        },
        {"role": "assistant", "content": empty},
        {"role": "user", "content": "<tool_response>\n5\n</tool_response>"},
        {"role": "user", "content": "Thanks."},
    ]


def test_what_was_generated_is_what_is_replayed() -> None:
    """So that the next turn finds its KV blocks."""
    answer = f"I add.\n{CALL}\n{CALL}"
    pieces = parse(ChatFormat(None).plan(HELLO, tools=[ADD]).parser(), answer)
    text, *_ = pieces
    assert isinstance(text, Text)
    arguments = [piece.text for piece in pieces if isinstance(piece, CallArguments)]
    replayed = {
        "role": "assistant",
        "content": text.text,
        "tool_calls": [call_of("add", argument) for argument in arguments],
    }
    assert ChatFormat(None).plan([*HELLO, replayed], tools=[ADD]).messages[-1]["content"] == answer


def test_only_tools_that_may_be_called_are_called() -> None:
    called = [CallBegin("add"), CallArguments('{"x": 1}'), CallEnd(), AnswerEnd("tool_calls")]
    text = [Text(CALL), AnswerEnd("stop")]
    for choice, pieces in [
        (ToolChoice(), called),
        (ToolChoice("required"), called),
        (ToolChoice("auto", ("add",)), called),
        (ToolChoice("auto", ("get_weather",)), text),
        (ToolChoice("none"), text),
    ]:
        plan = ChatFormat(None).plan(HELLO, tools=[WEATHER, ADD], choice=choice)
        assert parse(plan.parser(), CALL) == pieces
    assert isinstance(ChatFormat(None).plan(HELLO).parser(), PlainParser)


@pytest.mark.parametrize(
    ("names", "choice", "param", "words"),
    [
        (["a", "b", "a"], ToolChoice(), "tools", "two tools are called 'a'"),
        (["a", ""], ToolChoice("none"), "tools", "tools[1] is called ''"),
        (["a b"], ToolChoice(), "tools", "tools[0] is called 'a b'"),
        (["a\n"], ToolChoice(), "tools", "tools[0]"),
        (["ä"], ToolChoice(), "tools", "tools[0]"),
        (["a" * 129], ToolChoice(), "tools", "tools[0]"),
        (["a"], ToolChoice("required", ("b",)), "tool_choice", "no tool 'b'"),
        ([], ToolChoice("auto", ("b",)), "tool_choice", "no tool 'b'"),
        ([], ToolChoice("required"), "tool_choice", "there are no tools"),
    ],
)
def test_wrong_tools_are_refused(names: list[str], choice: ToolChoice, param: str, words: str) -> None:
    with pytest.raises(RequestError, match=re.escape(words)) as caught:
        ChatFormat(None).plan(HELLO, tools=[Tool(name) for name in names], choice=choice)
    assert caught.value.param == param


def test_all_sorts_of_names_are_fine() -> None:
    ChatFormat(None).plan(HELLO, tools=[Tool("a" * 64), Tool("A_b-c.9"), Tool("mcp__files__read")])
