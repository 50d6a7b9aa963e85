"""Calls are found in any answer, however it is split, and nothing else is taken for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.answers import cut, parse
from ultrafast.chat.calls import CallParser
from ultrafast.chat.syntax import HERMES, LISTED, LLAMA, CallSyntax
from ultrafast.types import (
    AnswerEnd,
    CallArguments,
    CallBegin,
    CallEnd,
    FinishReason,
    Piece,
    Text,
    TokenDelta,
    TokenLogprob,
)

NAMES = frozenset({"get_weather", "add"})
ENDED, CALLED, LENGTH = AnswerEnd("stop"), AnswerEnd("tool_calls"), AnswerEnd("length")


def call(name: str, arguments: str = "{}") -> list[Piece]:
    return [CallBegin(name), CallArguments(arguments), CallEnd()]


def pieces_of(
    text: str, syntax: CallSyntax = HERMES, *, streams: bool = True, finish: FinishReason = FinishReason.STOP
) -> list[Piece]:
    """The same for every size of parts."""
    results = [
        parse(CallParser(syntax, NAMES, streams=streams), cut(text, size), finish)
        for size in (1, 2, 3, 7, len(text) or 1)
    ]
    assert all(result == results[0] for result in results)
    return results[0]


WEATHER = '{"city": "Paris", "days": [1, {"a": "}]\\""}]}'
FOUND = [
    (HERMES, "", [ENDED]),
    (HERMES, "Hello <world> & <tool>.\n", [Text("Hello <world> & <tool>.\n"), ENDED]),
    (
        HERMES,
        f'<tool_call>\n{{"name": "get_weather", "arguments": {WEATHER}}}\n</tool_call>',
        [*call("get_weather", WEATHER), CALLED],
    ),
    (
        HERMES,
        'I look.\n\n<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>\n',
        [Text("I look."), *call("add"), *call("add", '{"x": 1}'), CALLED],
    ),
    (
        HERMES,  # in another order, no spaces, the other name, an id
        '<tool_call>{"id":"a","parameters":{"x":1},"name":"add"}</tool_call> Done.',
        [*call("add", '{"x":1}'), Text(" Done."), CALLED],
    ),
    (
        HERMES,  # marks and braces forgotten
        '<tool_call>{"name": "add", "arguments": {"x": 1}<tool_call>{"name": "add", "arguments": {}}',
        [*call("add", '{"x": 1}'), *call("add"), CALLED],
    ),
    (HERMES, '<<tool_call><tool_call>{"name": "add", "arguments": {}}', [Text("<<tool_call>"), *call("add"), CALLED]),
    (LISTED, '<tool_call>[{"name": "add", "arguments": {}}]</tool_call>', [*call("add"), CALLED]),
    (
        LISTED,
        '<tool_call>[\n{"name": "add", "arguments": {}},\n{"name": "get_weather", "arguments": {"x": 1}}\n]\n'
        "</tool_call>",
        [*call("add"), *call("get_weather", '{"x": 1}'), CALLED],
    ),
    (LLAMA, '{"name": "add", "parameters": {"x": 1}}', [*call("add", '{"x": 1}'), CALLED]),
    (
        LLAMA,
        '\n{"name": "add", "parameters": {}}; {"name": "get_weather", "parameters": {}}\n'
        '{"name": "add", "parameters": {}}',
        [*call("add"), *call("get_weather"), *call("add"), CALLED],
    ),
    (LLAMA, 'See {"name": "add", "parameters": {}}', [Text('See {"name": "add", "parameters": {}}'), ENDED]),
]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(("syntax", "text", "pieces"), FOUND)
def test_calls_are_found(syntax: CallSyntax, text: str, pieces: list[Piece], streams: bool) -> None:
    assert pieces_of(text, syntax, streams=streams) == pieces


MALFORMED = [
    '<tool_call>{"name": "add", "arguments": {x}}</tool_call>',
    '<tool_call>{"name": "add", "arguments": 5}</tool_call>',
    '<tool_call>{"name": "add", "arguments": [1]}</tool_call>',
    '<tool_call>{"name": "add"}</tool_call>',
    '<tool_call>{"name": "delete_all", "arguments": {}}</tool_call>',
    '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
    '<tool_call>{"arguments": {}}</tool_call>',
    '<tool_call>{"tool": "add", "arguments": {}}</tool_call>',
    "<tool_call></tool_call>",
    "<tool_call>[]</tool_call>",
    "<tool_call>" + " " * 1000,
    "<tool_call>\nadd(1, 2)\n</tool_call>",
    '<tool_call>{"name": "add", "argu',
]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_no_call_is_text(text: str, streams: bool) -> None:
    assert pieces_of(f"So: {text}", streams=streams) == [Text(f"So: {text}"), ENDED]


@pytest.mark.parametrize("text", ['{"answer": 5}', '{"name": "Bob", "parameters": {}}', "[1]", "{", '{"name": "add"}'])
def test_json_that_is_no_call_is_text(text: str) -> None:
    assert pieces_of(text, LLAMA) == [Text(text), ENDED]


def test_a_late_error_makes_text_of_the_whole_call_or_of_its_rest() -> None:
    text = '<tool_call>{"name": "add", "arguments": {"x": 1, y}}</tool_call>'
    assert pieces_of(text, streams=False) == [Text(text), ENDED]
    assert pieces_of(text) == [CallBegin("add"), CallArguments('{"x": 1, '), Text("y}}</tool_call>"), ENDED]


def test_a_cut_call_has_no_end() -> None:
    text = '<tool_call>\n{"name": "add", "arguments": {"x'
    assert pieces_of(text, finish=FinishReason.LENGTH) == [CallBegin("add"), CallArguments('{"x'), LENGTH]
    first = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>\n'
    assert pieces_of(first + text)[-1] == ENDED  # a stop string cut it
    assert pieces_of(first, finish=FinishReason.LENGTH) == [*call("add"), LENGTH]
    assert pieces_of(first, finish=FinishReason.CANCELLED) == [*call("add"), ENDED]


@pytest.mark.parametrize(
    "text", ["\n<tool_call>", "\n<tool_call>\n{", '\n<tool_call>\n{"name": "ad', '<tool_call>{"name": "add"']
)
def test_a_call_cut_before_its_arguments_leaves_nothing(text: str) -> None:
    assert pieces_of(text, finish=FinishReason.LENGTH) == [LENGTH]
    assert pieces_of("Well" + text, finish=FinishReason.LENGTH) == [Text("Well"), LENGTH]


def test_text_that_can_be_no_mark_does_not_wait() -> None:
    parser = CallParser(HERMES, NAMES, streams=True)
    assert parser.push(TokenDelta("a < b", [0])) == [Text("a < b")]
    assert parser.push(TokenDelta(" <tool", [0])) == []
    assert parser.push(TokenDelta("s>", [0])) == [Text(" <tools>")]


def test_arguments_come_as_they_are_written() -> None:
    parser = CallParser(HERMES, NAMES, streams=True)
    assert parser.push(TokenDelta('<tool_call>\n{"name": "add", "arguments": {"te', [0])) == [
        CallBegin("add"),
        CallArguments('{"te'),
    ]
    assert parser.push(TokenDelta('xt": "a', [0])) == [CallArguments('xt": "a')]
    assert parser.push(TokenDelta('"}', [0])) == [CallArguments('"}'), CallEnd()]


def test_logprobs_go_with_the_text() -> None:
    parser = CallParser(HERMES, NAMES, streams=True)
    entries = [TokenLogprob(token, -1.0) for token in range(9)]
    assert parser.push(TokenDelta("Hm", [0], entries[:1])) == [Text("Hm", entries[:1])]
    assert parser.push(TokenDelta(" <tool", [1], entries[1:2])) == []
    assert parser.push(TokenDelta("s>", [2], entries[2:3])) == [Text(" <tools>", entries[1:3])]
    assert parser.push(TokenDelta("<tool_call>", [3], entries[3:4])) == []
    assert parser.push(TokenDelta('{"name": "add", "arguments": {}}', [4], entries[4:5])) == call("add")
    assert parser.push(TokenDelta("</tool_call>\n", [5], entries[5:6])) == []
    end = TokenDelta("", [6], entries[6:7], FinishReason.STOP)
    assert parser.push(end) == [CALLED]
    parser = CallParser(HERMES, NAMES, streams=True)
    parser.push(TokenDelta("<too", [0], entries[:1]))
    end = TokenDelta("", [1], entries[1:2], FinishReason.STOP, "stop it")
    assert parser.push(end) == [Text("<too", entries[:2]), AnswerEnd("stop", "stop it")]


FRAGMENTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "\n", " ", "{", "}", "[", "]", ",", ":", ";", '"', "\\", "\\u00e9", "é", "🚀"),
        *('{"name": "add", "arguments": ', '"name"', '"add"', '"arguments"', '"parameters"', "{}", "-0.5e3", "<"),
    ]
)


@given(
    st.lists(FRAGMENTS, max_size=40).map("".join), st.data(), st.sampled_from([HERMES, LISTED, LLAMA]), st.booleans()
)
def test_any_text_in_any_parts(text: str, data: st.DataObject, syntax: CallSyntax, streams: bool) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    parts = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    pieces = parse(CallParser(syntax, NAMES, streams=streams), parts)
    assert pieces == parse(CallParser(syntax, NAMES, streams=streams), text)
    kinds = [type(piece) for piece in pieces]
    assert kinds.count(AnswerEnd) == 1
    assert kinds[-1] is AnswerEnd
    if CallBegin not in kinds:
        assert "".join(piece.text for piece in pieces if isinstance(piece, Text)) == text
    for begin, piece in enumerate(pieces):
        if isinstance(piece, CallBegin) and CallEnd in kinds[begin:]:
            arguments = pieces[begin + 1]
            assert isinstance(arguments, CallArguments)
            if kinds[begin + 2] is CallEnd:
                assert isinstance(json.loads(arguments.text), dict)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), json_values, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_any_arguments_come_through(arguments: dict[str, object], ascii: bool, indent: int | None) -> None:
    text = json.dumps(arguments, ensure_ascii=ascii, indent=indent)
    answer = f'<tool_call>{{"name": "add", "arguments": {text}}}</tool_call>'
    for streams in (True, False):
        assert parse(CallParser(HERMES, NAMES, streams=streams), answer) == [*call("add", text), CALLED]
