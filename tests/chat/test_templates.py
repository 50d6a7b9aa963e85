"""Conversations with tools come out right whatever the template can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from support import templates
from ultrafast.chat.abilities import find_abilities
from ultrafast.chat.plan import ChatFormat, ChatPlan
from ultrafast.chat.syntax import HERMES, LISTED, LLAMA, MISTRAL
from ultrafast.models.template import ChatTemplate
from ultrafast.types import Message, Tool

TOOL = Tool("add", "Adds.", {"type": "object", "properties": {"x": {"type": "integer"}}})


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, {"eos_token": "</s>"})


def rendered(source: str, messages: Sequence[Message], tools: Sequence[Tool] = (TOOL,)) -> str:
    """The prompt after planning."""
    plan = planned(source, messages, tools)
    return template(source).render(plan.messages, tools=plan.tools)


def planned(source: str, messages: Sequence[Message], tools: Sequence[Tool] = (TOOL,)) -> ChatPlan:
    return ChatFormat(source, template(source).render).plan(messages, tools=tools)


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def calls(*arguments: str, first: int = 1, **more: Any) -> Message:
    made = [
        {"id": f"call_{first + at}", "type": "function", "function": {"name": "add", "arguments": text}}
        for at, text in enumerate(arguments)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


def result(number: int, content: str) -> Message:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": content}


ALL = {
    name: getattr(templates, name)
    for name in "PLAIN QWEN QWEN3 QWEN3_THINKING SMOLLM3 LISTED LLAMA MISTRAL GEMMA XML".split()  # noqa: SIM905
}
SYNTAXES = {
    "PLAIN": None,
    "QWEN": HERMES,
    "QWEN3": HERMES,
    "QWEN3_THINKING": HERMES,
    "SMOLLM3": HERMES,
    "LISTED": LISTED,
    "LLAMA": LLAMA,
    "MISTRAL": MISTRAL,
    "GEMMA": None,
    "XML": None,
}


@pytest.mark.parametrize("name", ALL)
def test_the_syntax_is_found(name: str) -> None:
    can = find_abilities(ALL[name], template(ALL[name]).render)
    assert can.syntax == SYNTAXES[name]
    assert can.thinks == (name in ("QWEN3", "QWEN3_THINKING", "SMOLLM3"))
    assert can.begins_thought == (name == "QWEN3_THINKING")


LONG: list[Message] = [
    {"role": "system", "content": "Sys-1."},
    user("User-1."),
    calls('{"x": 11}'),
    result(1, "Result-1."),
    calls('{"x": 12}', '{"x": 13}', first=2, content="Assistant-1."),
    result(3, "Result-3."),
    result(2, "Result-2."),
    {"role": "assistant", "content": "Assistant-2."},
    {"role": "system", "content": "Sys-2."},
    user("User-2."),
]


@pytest.mark.parametrize("name", ALL)
def test_nothing_of_a_conversation_is_lost(name: str) -> None:
    prompt = rendered(ALL[name], LONG)
    content = [
        "Sys-1.", "User-1.", '{"x": 11}', "Result-1.", "Assistant-1.", '{"x": 12}', '{"x": 13}', "Result-2.",
        "Result-3.", "Assistant-2.", "Sys-2.", "User-2.",
    ]  # fmt: skip
    if name in ("LLAMA", "MISTRAL"):
        content.remove("Assistant-1.")  # there is no text beside calls
    if name == "XML":
        assert "<function=" not in prompt.split("<|im_start|>", 1)[1]
    assert [text for text in content if prompt.count(text) != 1] == []
    described = '"x": {' in prompt or "'x': {" in prompt
    assert described
    assert "call_1" not in prompt  # ids differ every time; the prompt must not


def test_qwen() -> None:
    messages = [
        user("Q"),
        calls('{"x": 1, "y": [2.5, "é"]}', '{"x": 2}', content="So:"),
        result(1, "A"),
        result(2, "B"),
    ]
    assert rendered(templates.QWEN, messages).endswith(
        "<|im_start|>assistant\nSo:\n"
        '<tool_call>\n{"name": "add", "arguments": {"x": 1, "y": [2.5, "é"]}}\n</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"x": 2}}\n</tool_call><|im_end|>\n<|im_start|>user\n'
        "<tool_response>\nA\n</tool_response>\n<tool_response>\nB\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_arguments_stay_as_they_were_written_where_the_template_takes_text() -> None:
    odd = '{"x":1e2,  "y": "\\u00e9"}'
    assert odd in rendered(templates.QWEN3, [user("Q"), calls(odd), result(1, "A")])
    assert '{"x": 100.0, "y": "é"}' in rendered(templates.QWEN, [user("Q"), calls(odd), result(1, "A")])


def test_arguments_that_are_no_object_do_not_break_a_template() -> None:
    for source in ALL.values():
        for text in ("{", "", "[1]", "5"):
            rendered(source, [user("Q"), calls(text), result(1, "A")])


def test_reasoning_is_replayed() -> None:
    messages = [user("Q"), calls("{}", reasoning_content="Hm."), result(1, "A")]
    assert '<think>\nHm.\n</think>\n\n<tool_call>\n{"name"' in rendered(templates.QWEN3, messages)


def test_llama_gets_one_call_at_a_time() -> None:
    prompt = rendered(templates.LLAMA, [user("Q"), calls('{"x": 1}', '{"x": 2}'), result(2, "B"), result(1, "A")])
    order = ['{"name": "add", "parameters": {"x": 1}}', '"A"', '{"name": "add", "parameters": {"x": 2}}', '"B"']
    assert sorted(order, key=prompt.index) == order


def test_calls_are_written_for_a_template_that_does_not() -> None:
    messages = [user("Q"), calls('{"x": 1}', '{"x": 2}', content="So:"), result(1, "A"), result(2, "B")]
    first, second = '{"name": "add", "arguments": {"x": 1}}', '{"name": "add", "arguments": {"x": 2}}'
    assert f"assistant\nSo:\n<tool_call>\n{first}\n</tool_call>\n<tool_call>\n{second}\n</tool_call><" in rendered(
        templates.SMOLLM3, messages
    )
    assert f"assistant\nSo:\n<tool_call>[{first}, {second}]</tool_call><" in rendered(templates.LISTED, messages)


def test_a_model_without_system_messages_gets_them_from_the_user() -> None:
    messages = [{"role": "system", "content": "Be brief."}, user("Q"), {"role": "assistant", "content": "A"}, user("R")]
    assert rendered(templates.GEMMA, messages, ()) == (
        "<start_of_turn>user\nBe brief.\n\nQ<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
        "<start_of_turn>user\nR<end_of_turn>\n<start_of_turn>model\n"
    )


@pytest.mark.parametrize("name", ALL)
def test_plain_conversations_are_left_alone(name: str) -> None:
    messages = [user("Q"), {"role": "assistant", "content": "A"}, user("R")]
    for empty in ({}, {"tool_calls": None}, {"tool_calls": []}):
        plan = planned(ALL[name], [messages[0], {**messages[1], **empty}, messages[2]], ())
        assert (plan.messages, plan.tools, plan.grammar) == (messages, None, None)


def test_a_template_that_refuses_everything_teaches_nothing() -> None:
    source = "{{ raise_exception('no') }}"
    assert planned(source, [user("Q")]).tools is None
