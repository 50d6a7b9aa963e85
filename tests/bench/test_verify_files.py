"""What `verify` asks: prompts, questions and tool requests, of ours and out of files."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ultrafast.bench.client.call import Call, ToolCall
from ultrafast.bench.verify.answers import Question, is_right, questions_of, sums
from ultrafast.bench.verify.prompts import prompts, prompts_of
from ultrafast.bench.verify.tool_asks import TOOLS, is_valid, tool_asks
from ultrafast.errors import ConfigError

IN_ONE_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_prompts_differ_and_begin_with_every_language() -> None:
    texts = prompts(90, seed=3)
    assert len(set(texts)) == 90
    assert texts[:11] != prompts(11, seed=4)
    assert sum(any(ord(letter) > 0x3000 for letter in text) for text in texts[:11]) == 2  # Chinese, Japanese
    with pytest.raises(ConfigError, match="prompts-file"):
        prompts(1000)


@pytest.mark.parametrize("count", [3, 240, 1500])
def test_two_of_three_tool_requests_need_a_tool(count: int) -> None:
    asks = tool_asks(count)
    assert len(set(asks)) == count
    needing = sum(text.startswith(("What is the weather", "How much is", "Set a timer")) for text in asks)
    assert needing == count - count // 3
    with pytest.raises(ConfigError, match="there are"):
        tool_asks(100_000)


def test_sums_are_right() -> None:
    for question in sums(200, seed=1):
        first, second = (int(word) for word in question.question.replace("?", "").split() if word.isdigit())
        assert int(question.answer) in (first + second, first - second)


@pytest.mark.parametrize(
    ("name", "arguments", "valid"),
    [
        ("get_weather", '{"city": "Oslo", "unit": "celsius"}', True),
        ("get_weather", '{"city": "Oslo", "unit": "kelvin"}', False),
        ("get_weather", '{"city": "Oslo"}', False),
        ("get_weather", '{"city": "Oslo", "unit": "celsius", "more": 1}', False),
        ("get_weather", '{"city": 5, "unit": "celsius"}', False),
        ("set_timer", '{"minutes": 5.0, "label": "tea"}', True),
        ("set_timer", '{"minutes": 5.5, "label": "tea"}', False),
        ("set_timer", '{"minutes": true, "label": "tea"}', False),
        ("set_timer", '{"minutes": 5', False),
        ("set_timer", "[]", False),
        ("convert_money", '{"amount": 1.5, "source": "EUR", "target": "USD"}', True),
        ("other", "{}", False),
    ],
)
def test_calls_are_held_against_the_schemas(name: str, arguments: str, valid: bool) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    assert is_valid(ToolCall("1", name, arguments)) is valid
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
    if name in schemas and arguments.endswith(("}", "]")):
        assert jsonschema.Draft202012Validator(schemas[name]).is_valid(json.loads(arguments)) is valid


@pytest.mark.parametrize(
    ("answer", "said", "right"),
    [
        ("42", "42", True),
        ("42", "The answer is 42.", True),
        ("42", "20 + 22 = **42**", True),
        ("42", "42 is 20 plus 22", False),
        ("1234", "It has 1,234 feet", True),
        ("-3", "−3", True),
        ("42", "I do not know", False),
        ("42", "142", False),
        ("Paris", "It is **Paris**.", True),
        ("Paris", "Not comparis", False),
        ("New York", "in new  york!", True),
    ],
)
def test_answers_are_found_at_the_end(answer: str, said: str, right: bool) -> None:
    assert is_right(Question("?", answer), Call("1", {}, None, 0.0, text=said)) is right


def test_questions_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"question": "1+1?", "answer": "2", "category": "sums"}\n\n{"question": "Hi", "answer": "Yes"}')
    assert questions_of(file) == [Question("1+1?", "2"), Question("Hi", "Yes")]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "has no questions"),
        ('{"question": "a"}', "line 1: Object missing required field `answer`"),
        ('{"question": "a", "answer": "b"}\nx', "line 2"),
        ('{"question": " ", "answer": "b"}', "empty"),
        ('{"question": "a", "answer": "?!"}', "empty"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(content)
    with pytest.raises(ConfigError, match=problem):
        questions_of(file)


@IN_ONE_FOLDER
@given(st.binary(max_size=200))
def test_files_of_anything_raise_only_what_is_declared(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    for read in (questions_of, lambda path: prompts_of(path, 2)):
        with suppress(ConfigError):
            assert read(file)


def test_prompts_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("one\n\none\n two \n", "utf-8")
    assert prompts_of(file, 2) == ["one", "two"]
    with pytest.raises(ConfigError, match="has 2 prompts"):
        prompts_of(file, 3)
    with pytest.raises(ConfigError, match="cannot be read"):
        prompts_of(tmp_path, 2)
