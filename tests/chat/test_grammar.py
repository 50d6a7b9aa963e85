"""A grammar allows exactly the answers that are read as meant."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import jsonschema
import pytest
from llguidance import LLMatcher, LLTokenizer

from support.answers import cut, parse
from ultrafast.chat.answer import AnswerParser, PlainParser
from ultrafast.chat.calls import CallParser
from ultrafast.chat.grammar import Thoughts, answer_grammar
from ultrafast.chat.syntax import HERMES, LISTED, LLAMA, MISTRAL, CallSyntax
from ultrafast.chat.thoughts import ThoughtParser
from ultrafast.errors import RequestError
from ultrafast.types import AnswerEnd, CallArguments, CallBegin, CallEnd, OutputFormat, Piece, Text, Tool, ToolChoice

BYTES = LLTokenizer("byte")
TEXT, OBJECT = OutputFormat(), OutputFormat("json_object")
PERSON = OutputFormat(
    "json_schema",
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False},
)
WEATHER = Tool(
    "get_weather",
    "",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 10},
            "unit": {"enum": ["C", "F"]},
            "days": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    strict=True,
)
ADD = Tool(
    "add", "", {"$ref": "#/$defs/Pair", "$defs": {"Pair": {"type": "object", "properties": {"x": {"type": "number"}}}}}
)
TOOLS = [WEATHER, ADD]
SYNTAXES = [HERMES, LISTED, LLAMA, MISTRAL]
REQUIRED, ONE = ToolChoice("required"), ToolChoice("required", parallel=False)


def grammar_of(
    syntax: CallSyntax,
    choice: ToolChoice = ToolChoice(),  # noqa: B008 (immutable)
    output: OutputFormat = TEXT,
    thoughts: Thoughts = "none",
    tools: list[Tool] = TOOLS,
) -> str:
    grammar = answer_grammar(syntax, tools, choice, output, thoughts)
    assert grammar is not None
    return grammar


def matcher(grammar: str) -> LLMatcher:
    made = LLMatcher(BYTES, grammar, log_level=0)
    assert not made.is_error(), made.get_error()
    return made


def allows(grammar: str, answer: str) -> bool:
    state = matcher(grammar)
    tokens = list(answer.encode())
    return state.try_consume_tokens(tokens) == len(tokens) and state.is_accepting()


def written(syntax: CallSyntax, *calls: tuple[str, str]) -> str:
    """Calls as the syntax has them."""
    bodies = [f'{{"name": "{name}", "{syntax.arguments}": {arguments}}}' for name, arguments in calls]
    if syntax.listed:
        bodies = [f"[{syntax.between.join(bodies)}]"]
    return syntax.between.join(syntax.opening + body + syntax.closing for body in bodies)


def pieces_of(*calls: tuple[str, str]) -> list[Piece]:
    return [piece for name, text in calls for piece in (CallBegin(name), CallArguments(text), CallEnd())]


def parser(syntax: CallSyntax, thoughts: Thoughts = "none", tools: list[Tool] = TOOLS) -> AnswerParser:
    answer = CallParser(syntax, {tool.name for tool in tools}, streams=True) if tools else PlainParser()
    return answer if thoughts == "none" else ThoughtParser(answer, begun=thoughts == "begun")


SUN = ("get_weather", '{"city": "Ulm", "unit": "C"}')
SUM = ("add", '{"x": 1.5}')
MADE = [(SUN,), (SUM,), (SUM, SUN), (SUN, SUN, SUM)]
"""What models call."""


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("syntax", SYNTAXES)
def test_calls_are_allowed_where_they_may_be(syntax: CallSyntax, made: tuple[tuple[str, str], ...]) -> None:
    answer = written(syntax, *made)
    for choice, output in [(REQUIRED, TEXT), (REQUIRED, OBJECT), (ToolChoice(), OBJECT), (ToolChoice(), PERSON)]:
        assert allows(grammar_of(syntax, choice, output), answer)
        assert allows(grammar_of(syntax, choice, output, "begun"), f"Hm.\n</think>\n\n{answer}")
        assert allows(grammar_of(syntax, choice, output, "optional"), f"<think>\nHm.\n</think>\n\n{answer}")
    assert allows(grammar_of(syntax, ONE), answer) == (len(made) == 1)
    assert not allows(grammar_of(syntax, REQUIRED), "")
    assert not allows(grammar_of(syntax, REQUIRED), f"Well. {answer}")
    assert parse(parser(syntax), cut(answer, 3)) == [*pieces_of(*made), AnswerEnd("tool_calls")]


@pytest.mark.parametrize("syntax", [HERMES, LISTED])
def test_text_may_come_before_calls(syntax: CallSyntax) -> None:
    grammar = grammar_of(syntax)
    for text in ("", "Hi.", "Tom & <b>Jerry</b> {é🚀}\n", "<tool_cal", "\n"):
        assert allows(grammar, text)
        assert allows(grammar, text + written(syntax, SUN, SUM))
        assert not allows(grammar, f"{text}{syntax.mark}")
        assert not allows(grammar, f"{text}{syntax.mark} {text}")
        assert not allows(grammar, text + written(syntax, SUN) + " Done.")
        assert not allows(grammar_of(syntax, ToolChoice(parallel=False)), text + written(syntax, SUN, SUM))


def test_llama_calls_are_a_whole_answer() -> None:
    grammar = grammar_of(LLAMA)
    for text in ("", "Hi.", " [1] {}", "\n"):
        assert allows(grammar, text)
    for text in ("{", '{"a": 1}', ' {"name"', written(LLAMA, SUN) + " Done."):
        assert not allows(grammar, text)
    assert allows(grammar, written(LLAMA, SUN, SUM))
    assert allows(grammar_of(LLAMA, thoughts="begun"), f"Hm.</think>\n\n{written(LLAMA, SUM)}")
    assert allows(grammar_of(LLAMA, thoughts="optional"), written(LLAMA, SUM))


def test_mistral_may_write_its_token_where_nothing_is_promised() -> None:
    assert answer_grammar(MISTRAL, [ADD], ToolChoice(), TEXT, "none") is None
    assert allows(grammar_of(MISTRAL), "Hi.")  # a strict tool


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_wrong_calls_are_not_allowed(syntax: CallSyntax) -> None:
    for choice in (ToolChoice(), REQUIRED):
        for name, arguments in [
            ("get_time", "{}"),
            ("get_weather", "{}"),
            ("get_weather", '{"city": "Ulm", "unit": "K"}'),
            ("get_weather", '{"city": "Ulm", "unit": "C", "more": 1}'),
            ("get_weather", '{"city":"Ulm", "unit": "C"}'),
            ("get_weather", '{"city": "Ulm", "unit": "C", "days": [1, 2, 3, 4]}'),
            ("add", '{"x": "1"}'),
            ("add", "[]"),
            ("add", '{"x": 1'),
        ]:
            assert not allows(grammar_of(syntax, choice), written(syntax, (name, arguments)))


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_output_in_a_form_or_calls(syntax: CallSyntax) -> None:
    """Also where a call and the output begin with the same brace."""
    grammar = grammar_of(syntax, output=PERSON)
    assert allows(grammar, '{"name": "Ada"}')
    assert allows(grammar, '{"name": "add"}')
    assert not allows(grammar, '{"name": 1}')
    assert not allows(grammar, "Hi.")
    assert not allows(grammar_of(syntax, REQUIRED, PERSON), '{"name": "Ada"}')
    anything = grammar_of(syntax, output=OBJECT)
    assert allows(anything, '{"a": [1, {"b": null}]}')
    assert not allows(anything, "[1]")
    assert parse(parser(syntax), '{"name": "add"}') == [Text('{"name": "add"}'), AnswerEnd("stop")]


def test_output_without_tools() -> None:
    grammar = grammar_of(HERMES, output=PERSON, tools=[])
    assert allows(grammar, '{"name": "<tool_call>"}')
    assert not allows(grammar, '{"nam": "Ada"}')
    assert answer_grammar(HERMES, [], ToolChoice(), TEXT, "optional") is None
    thoughtful = grammar_of(HERMES, output=PERSON, tools=[], thoughts="optional")
    assert allows(thoughtful, '{"name": "Ada"}')
    assert allows(thoughtful, '<think>\nHm.\n</think>\n\n{"name": "Ada"}')


def test_thoughts_come_once_and_first() -> None:
    for thoughts, begin in (("optional", "<think>"), ("begun", "")):
        grammar = grammar_of(HERMES, thoughts=thoughts)  # type: ignore[arg-type]
        call = written(HERMES, SUM)
        assert allows(grammar, f"{begin}Maybe {call}?</think>\n\nHi.")
        assert allows(grammar, f"{begin}\n</think>\n\n{call}")
        assert not allows(grammar, f"{begin}Hm.")
        assert not allows(grammar, f"{begin}Hm.</think><tool_call>Hm.")
    assert allows(grammar_of(HERMES, thoughts="optional"), "Hi.")
    assert not allows(grammar_of(HERMES, thoughts="begun"), "Hi.")


PARTLY = [
    {"type": "object", "properties": {"x": {"type": "string", "pattern": "(?=a)b"}}},
    {"type": "object", "properties": {"x": {"$ref": "https://example.com/schema"}}},
]
ODD = [
    {"type": "object", "properties": []},
    {"type": "object", "properties": {"x": {"type": "text"}}},
    {"type": "array"},
]


@pytest.mark.parametrize("schema", ODD)
def test_a_schema_that_cannot_be_had_is_any_object(schema: dict[str, Any]) -> None:
    grammar = grammar_of(HERMES, REQUIRED, tools=[Tool("f", "", schema)])
    assert allows(grammar, written(HERMES, ("f", '{"anything": [1]}')))
    assert not allows(grammar, written(HERMES, ("f", "[]")))


@pytest.mark.parametrize("schema", [*PARTLY, *ODD])
def test_a_strict_schema_that_cannot_be_had_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"the schema of the tool 'f' cannot be guaranteed: \w") as caught:
        grammar_of(HERMES, tools=[ADD, Tool("f", "", schema, strict=True)])
    assert caught.value.param == "tools"


@pytest.mark.parametrize("schema", PARTLY)
def test_what_cannot_be_had_of_a_schema_is_left_out(schema: dict[str, Any]) -> None:
    grammar = grammar_of(HERMES, REQUIRED, tools=[Tool("f", "", schema)])
    assert allows(grammar, written(HERMES, ("f", '{"x": "c"}')))
    assert not allows(grammar, written(HERMES, ("f", '{"y": "c"}')))


def test_what_is_supported_of_a_schema_holds() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer", "format": "odd"}}, "not": {"required": ["y"]}}
    grammar = grammar_of(HERMES, REQUIRED, tools=[Tool("f", "", schema)])
    assert allows(grammar, written(HERMES, ("f", '{"x": 2}')))
    assert not allows(grammar, written(HERMES, ("f", '{"x": "2"}')))


@pytest.mark.parametrize("strict", [True, False])
def test_arguments_are_not_made_up(strict: bool) -> None:
    def takes(schema: dict[str, Any], arguments: str) -> bool:
        grammar = grammar_of(HERMES, REQUIRED, tools=[Tool("f", "", schema, strict)])
        return allows(grammar, written(HERMES, ("f", arguments)))

    named = {"properties": {"x": {"type": "object", "properties": {}}}}
    assert takes(named, '{"x": {"y": 1}}')
    assert not takes(named, '{"y": 1}')
    assert takes({**named, "additionalProperties": {"type": "integer"}}, '{"y": 1}')
    assert takes({**named, "patternProperties": {"^y": {}}}, '{"y": 1}')
    assert takes({**named, "allOf": [{"properties": {"y": {}}}]}, '{"y": 1}')
    assert takes({"type": "object"}, '{"y": 1}')
    assert takes({}, '{"y": 1}')
    assert not takes({"properties": {}}, '{"y": 1}')
    assert not takes({**named, "required": ["y"]}, "{}")
    assert takes({**named, "required": ["y"]}, '{"y": 1}')


def test_schemas_cannot_change_the_form() -> None:
    schema = {"type": "object", "x-guidance": {"whitespace_flexible": True, "lenient": True}, "not": {}}
    with pytest.raises(RequestError, match="not"):
        grammar_of(HERMES, tools=[Tool("f", "", schema, strict=True)])


def test_an_output_that_cannot_be_had_is_refused() -> None:
    with pytest.raises(RequestError, match="the schema of the output cannot be guaranteed") as caught:
        grammar_of(HERMES, output=OutputFormat("json_schema", {"not": {}}), tools=[])
    assert caught.value.param == "output"


def test_calls_come_to_an_end() -> None:
    for syntax in SYNTAXES:
        assert allows(grammar_of(syntax, REQUIRED), written(syntax, *[SUM] * 32))
        assert not allows(grammar_of(syntax, REQUIRED), written(syntax, *[SUM] * 33))


LIKELY = [*'abcx0123 "{}[]:,.<>/\né', "<think>", "</think>", "<tool_call>", '{"', "</tool_call>"]


def walks(grammar: str, count: int) -> Iterator[str]:
    """Answers that the grammar allows, at random: likely words rather than any."""
    chance = random.Random(5)
    for _ in range(count):
        state, answer = matcher(grammar), b""
        while not state.is_stopped() and len(answer) < 1000:
            words = [word for text in LIKELY if state.validate_tokens(list(word := text.encode())) == len(word)]
            mask = state.compute_logit_bias()
            words = words or [bytes([token]) for token in range(256) if mask[token]]
            if not words or (state.is_accepting() and chance.random() < 0.3):
                break
            word = chance.choice(words)
            assert state.consume_tokens(list(word))
            answer += word
        if state.is_accepting():
            yield answer.decode()


FLAG = {"type": "object", "properties": {"x": {"enum": [1, "}"]}}, "required": ["x"], "additionalProperties": False}


@pytest.mark.parametrize("thoughts", ["none", "optional", "begun"])
@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("choice", [ToolChoice(), REQUIRED, ONE])
def test_every_allowed_answer_is_read(syntax: CallSyntax, choice: ToolChoice, thoughts: Thoughts) -> None:
    tools = [Tool("f", "", FLAG, strict=True), WEATHER]
    num_read = 0
    for answer in walks(grammar_of(syntax, choice, thoughts=thoughts, tools=tools), 30):
        *pieces, end = parse(parser(syntax, thoughts, tools), cut(answer, 2))
        num_calls = sum(isinstance(piece, CallBegin) for piece in pieces)
        assert num_calls == sum(isinstance(piece, CallEnd) for piece in pieces)
        assert isinstance(end, AnswerEnd)
        assert end.reason == ("tool_calls" if num_calls else "stop")
        if choice.mode == "required":
            assert num_calls >= 1
            assert not any(isinstance(piece, Text) for piece in pieces)
        assert choice.parallel or num_calls <= 1
        for begin, arguments in pairwise(pieces):
            if isinstance(begin, CallBegin):
                assert isinstance(arguments, CallArguments)
                schema = next(tool.parameters for tool in tools if tool.name == begin.name)
                jsonschema.validate(json.loads(arguments.text), schema)
        num_read += 1
    assert num_read >= 3
