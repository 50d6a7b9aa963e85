"""Schemas: what outputs may be under them, what is refused and where, and that nothing else ever happens."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.grammars import json_value, takes, wander
from support.schemas import SchemaMaker
from support.scripted_engine import ByteTokenizer
from ultrafast.chat.schema import library_schema
from ultrafast.chat.schema_keywords import SchemaProblem
from ultrafast.engine.grammar import Grammars
from ultrafast.errors import RequestError

DRAFT_4, DRAFT_7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 7))
A_INTEGER = {"properties": {"a": {"type": "integer"}}}
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "additionalProperties": False}
TAGGED = {
    "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
    "$defs": {
        kind: {"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]}
        for kind in ("cat", "dog")
    },
}

TAKEN = [
    ({}, '[1, {"a": null}]'),
    ({"type": "object"}, '{"a": 1, "b": [true]}'),
    (A_INTEGER, '{"a": 1, "b": "x"}'),
    (A_INTEGER, '"not an object"'),
    ({"type": ["string", "null"]}, "null"),
    ({"const": "tab\t"}, '"tab\\t"'),
    ({"enum": [1, "a", None, [2]]}, "[2]"),
    ({"type": "integer", "minimum": -5, "maximum": 2**70}, "7"),
    ({"$schema": DRAFT_4, "type": "number", "exclusiveMinimum": True, "minimum": 1}, "1.5"),
    ({"$ref": "#/definitions/a~1b%20c", "definitions": {"a/b c": {"type": "null"}}}, "null"),
    ({"$ref": "#/$defs/node", "$defs": {"node": NODE}}, '{"next": {"next": {}}}'),
    (TAGGED, '{"kind": "dog"}'),
    ({"$schema": DRAFT_7, "items": [{"type": "null"}], "additionalItems": False}, "[null]"),
    ({"uniqueItems": False, "then": False, "maxContains": 0, "unevaluatedProperties": True}, "1"),
    ({"type": "integer", "format": "int64"}, "1"),
    ({"type": "string", "format": "password"}, '"any"'),
    ({"type": "integer", "format": "iri"}, "1"),
    ({"minProperties": 2, "required": ["a"]}, '{"a": 1, "b": 2}'),
    ({"$schema": DRAFT_7, "$id": "x:y", "type": "null"}, "null"),
    ({"x-order": 3, "type": "null", "title": "Order"}, "null"),
    ({"const": {"\u0001": "a"}}, '{"\\u0001": "a"}'),
    (True, "0"),
]  # fmt: skip
NOT_TAKEN = [
    ({}, '{"a":1}'),
    ({}, ' {"a": 1}'),
    ({}, '{"a": 1,\n"b": 2}'),
    (A_INTEGER, '{"a": "x"}'),
    (A_INTEGER, '{"\\u0061": "x"}'),  # the name in disguise
    (A_INTEGER, '{"a": 1, "a": "x"}'),
    ({"type": "object", "properties": {"b\n": {"type": "null"}}}, '{"b\\u000a": 1}'),
    ({"patternProperties": {"^a": {"type": "integer"}}}, '{"\\u0061": "x"}'),
    ({"type": "integer", "exclusiveMinimum": True, "minimum": 1}, "1"),
    ({"items": [{"type": "null"}], "additionalItems": False}, "[null, 1]"),
    ({"items": [{"type": "null"}], "anyOf": [{"type": "array"}], "additionalItems": False}, "[null, 1]"),
    ({"additionalProperties": False, "allOf": [{"properties": {"b": {}}}], "properties": {"a": {}}}, '{"b": 1}'),
    ({"type": "string", "format": "date"}, '"2024-02-30"'),
    (TAGGED, '{"kind": "cow"}'),
    ({"const": 1, "type": "integer"}, "1.0"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "text"), TAKEN)
def test_what_satisfies_a_schema_may_be_written(schema: Any, text: str) -> None:
    assert takes(schema, text)
    jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize(("schema", "text"), NOT_TAKEN)
def test_what_is_not_written(schema: Any, text: str) -> None:
    assert not takes(schema, text)


REFUSED = [
    (3, "", "an object or a boolean, not a number"),
    ({"properties": []}, "/properties", "object of 1000 schemas at most"),
    ({"properties": {"a/b": {"type": "text"}}}, "/properties/a~1b/type", "type is one of"),
    ({"items": {"uniqueItems": True}}, "/items/uniqueItems", "uniqueItems is not supported"),
    ({"anyOf": [{}, {"not": {}}]}, "/anyOf/1/not", "not is not supported"),
    ({"if": {}}, "/if", "if is not supported"),
    ({"$defs": {"a": {"contains": {}}}, "$ref": "#/$defs/a"}, "/$defs/a/contains", "contains is not supported"),
    ({"anyOf": []}, "/anyOf", "one at least"),
    ({"enum": []}, "/enum", "1 to 10000 values"),
    ({"enum": list(range(10_001))}, "/enum", "1 to 10000 values"),
    ({"enum": ["a", ["\u0001"]]}, "/enum/1/0", "control character"),
    ({"const": {"a": 2**53 + 1}}, "/const/a", "beyond 2^53"),
    ({"minimum": 2**53 + 2}, "/minimum", "beyond 2^53"),
    ({"minimum": "1"}, "/minimum", "a number, not a string"),
    ({"minimum": float("nan")}, "/minimum", "a number, not nan"),
    ({"multipleOf": 0}, "/multipleOf", "above 0"),
    ({"minLength": -1}, "/minLength", "from 0 to"),
    ({"maxItems": 2**31}, "/maxItems", "from 0 to"),
    ({"minItems": 1.5}, "/minItems", "integer"),
    ({"required": "a"}, "/required", "list of names"),
    ({"minProperties": 2}, "/minProperties", "one more than"),
    ({"pattern": "(?=a)"}, "/pattern", "'(?=', which no grammar can look for"),
    ({"patternProperties": {"(": {}}}, "/patternProperties/(", "nothing closes"),
    ({"format": "iri"}, "/format", "none of date-time"),
    ({"$ref": "https://example.com/a"}, "/$ref", "within the schema only"),
    ({"$ref": "#/$defs/a"}, "/$ref", "points to nothing"),
    ({"$ref": ["#"]}, "/$ref", "not a list"),
    ({"items": {"$id": "x:y"}}, "/items/$id", "at the top only"),
    ({"$schema": "http://json-schema.org/draft-07/schema", "prefixItems": [{}]}, "/prefixItems", "an older one"),
    ({"properties": {f"p{n}": {} for n in range(1001)}}, "/properties", "1000"),
    ({"allOf": [{"anyOf": [{}] * 2600}] * 2}, "/allOf/1/anyOf/", "more than 5000 schemas"),
    ({"oneOf": [{"type": "string"}, {"minLength": 3}]}, None, "alternatives of a oneOf must differ"),
    ({"patternProperties": {"a": {}, "b": {}}}, None, "must not match the same names"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, None, "nothing satisfies it"),
    ({"type": "string", "pattern": "a^"}, None, "at the ends of a pattern only"),
    (False, None, "nothing satisfies it"),
    ({"const": "\ud800"}, None, "lone surrogate"),
    ({"$ref": "#"}, None, "nothing satisfies it"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, None, "nothing satisfies it"),
    ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, None, "nothing satisfies it"),
    ({"enum": ["x" * 300_000]}, None, "262144 are allowed"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "path", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused_is_said_with_the_place(schema: Any, path: str | None, reason: str) -> None:
    with pytest.raises(SchemaProblem) as refusal:
        library_schema(schema)
    assert reason in str(refusal.value)
    if path:
        assert f"(at #{path}" in str(refusal.value)
    assert len(str(refusal.value)) < 500


def test_what_cannot_end_is_never_begun() -> None:
    endless = {"type": "object", "properties": {"next": {"$ref": "#/$defs/endless"}}, "required": ["next"]}
    either = {"anyOf": [{"$ref": "#/$defs/endless"}, {"type": "null"}]}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/endless"}, "b": either}}
    schema |= {"additionalProperties": False, "$defs": {"endless": endless}}
    assert takes(schema, '{"b": null}')
    with pytest.raises(SchemaProblem, match="nothing satisfies it"):
        library_schema({**schema, "required": ["a"]})
    tokenizer, rng = ByteTokenizer(), random.Random(0)
    grammars = Grammars(tokenizer)  # type: ignore[arg-type]
    for _ in range(10):
        text, complete = wander(
            grammars.constraint(f"start: %json {library_schema(schema)}"), tokenizer, rng, max_tokens=40
        )
        assert complete
        assert b"next" not in text


def test_what_cannot_be_guaranteed_is_left_out_of_a_lenient_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "not": {"const": 3}},
            "b": {"type": "string", "pattern": "(?=x)", "format": "iri"},
            "c": {"oneOf": [{"type": "null"}, {"type": ["null", "boolean"]}]},
        },
        "additionalProperties": False,
    }
    with pytest.raises(SchemaProblem):
        library_schema(schema)
    state = Grammars(ByteTokenizer()).constraint(f"start: %json {library_schema(schema, lenient=True)}")  # type: ignore[arg-type]
    for byte in b'{"a": 3, "b": "any", "c": null}\0':
        state.accept(byte)
    with pytest.raises(SchemaProblem, match="type is one of"):  # wrong, not only more than can be guaranteed
        library_schema({"type": "text"}, lenient=True)


def _chain(length: int) -> dict[str, Any]:
    definitions = {
        f"d{n}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(length)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{length}": {"type": "null"}}}


def test_the_depth_of_references_is_bounded_however_they_are_reached() -> None:
    """The library would end the process: it follows references as they come, and has no stack for many."""
    library_schema(_chain(70))
    deep = _chain(400)
    order = [{"$ref": f"#/$defs/d{n}"} for n in range(400, -1, -20)]
    for schema in (deep, {**deep, "items": order, "type": "object"}, {**deep, "anyOf": order}):
        with pytest.raises(SchemaProblem, match="within more than 150 others"):
            library_schema(schema)
    # From the end of the chain none is far.
    library_schema({"anyOf": order, "$defs": deep["$defs"]})
    with pytest.raises(SchemaProblem, match="within more than 50 others"):
        library_schema(json.loads('{"items":' * 60 + "true" + "}" * 60))
    with pytest.raises(SchemaProblem, match="within more than 50 others"):
        library_schema({"const": json.loads("[" * 900 + "]" * 900)})


def test_random_outputs_of_random_schemas_satisfy_them() -> None:
    """What a model without any sense writes: 200 schemas, three texts each."""
    tokenizer, finished = ByteTokenizer(), 0
    grammars = Grammars(tokenizer)  # type: ignore[arg-type]
    for seed in range(200):
        schema, rng = SchemaMaker(seed).schema(), random.Random(seed)
        grammar = f"start: %json {library_schema(schema)}"
        for _ in range(3):
            text, complete = wander(grammars.constraint(grammar), tokenizer, rng, max_tokens=500)
            if complete:
                finished += 1
                jsonschema.Draft202012Validator(schema).validate(json_value(text))  # says which seed by its schema
    assert finished > 400


_KEYWORDS = """type enum const $ref anyOf oneOf allOf items prefixItems additionalItems properties patternProperties
additionalProperties required minItems maxItems minLength maxLength minProperties maxProperties minimum maximum
exclusiveMinimum exclusiveMaximum multipleOf pattern format not if uniqueItems $id $schema $defs a""".split()  # noqa: SIM905
_WORDS = ["string", "object", "#", "#/$defs/a", "#/items", "date", "^a{2,}$", "(", "[", "\\", "\ud800", "\x00"]
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.integers() | st.floats() | st.sampled_from(_WORDS) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_KEYWORDS), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_VALUES, st.booleans())
def test_any_json_as_a_schema_is_a_grammar_or_a_refusal(schema: Any, lenient: bool) -> None:
    try:
        text = library_schema(schema, lenient=lenient)
    except SchemaProblem:
        return
    with suppress(RequestError):
        _GRAMMARS.prepare(f"start: %json {text}")


_GRAMMARS = Grammars(ByteTokenizer())  # type: ignore[arg-type]
