"""Schemas that refer to each other: which of them can never end, and how deep they go. They are as `SchemaReader` gives
them: by name, each keyword checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ultrafast.chat.schema_keywords import SchemaProblem

DEFINITION = "#/$defs/"
"""What stands before the name of a definition in a reference to it."""
_MAX_CHAIN = 150  # schemas within each other, through references: the library has no stack for a thousand
Schema = dict[str, Any] | bool
Definitions = Mapping[str, Schema]


def drop_endless(root: Schema, definitions: Definitions) -> None:
    """Put ``false`` in place of references to what has no finite value, such as an object that must contain itself: a
    model that began one could not complete it."""
    finite: set[str] = set()
    left = dict(definitions)
    while found := {name for name, schema in left.items() if _is_finite(schema, finite)}:
        finite |= found
        left = {name: schema for name, schema in left.items() if name not in found}
    if left:
        for schema in (root, *definitions.values()):
            for inner in list(_all(schema)):
                if inner.get("$ref", "").removeprefix(DEFINITION) in left:
                    del inner["$ref"]
                    inner["allOf"] = [*inner.get("allOf", ()), False]


def check_chains(root: Schema, definitions: Definitions) -> None:
    """Refuse what the library would follow too deep. It follows each reference once, when it first comes across it.

    Raises:
        SchemaProblem: the schema goes too deep.
    """
    seen: set[str] = set()

    def follow(schema: Schema, depth: int) -> None:
        if depth > _MAX_CHAIN:
            raise SchemaProblem((), f"it has schemas within more than {_MAX_CHAIN} others, through references")
        for keyword, inner in _parts(schema):
            if keyword != "$ref":
                follow(inner, depth + 1)
            elif inner not in seen:
                seen.add(inner)
                follow(definitions[inner], depth + 1)

    follow(root, 0)


def _parts(schema: Schema) -> Iterator[tuple[str, Any]]:
    """What the library goes through, in its order: schemas, and names of schemas that are referred to."""
    if isinstance(schema, bool):
        return
    kinds = schema.get("type", ["array", "object"])
    for keyword, value in schema.items():
        match keyword:
            case "$ref":
                yield keyword, value.removeprefix(DEFINITION)
            case "anyOf" | "oneOf" | "allOf":
                yield from ((keyword, inner) for inner in value)
            case "prefixItems" if "array" in kinds:
                yield from ((keyword, inner) for inner in value)
            case "items" if "array" in kinds:
                yield keyword, value
            case "properties" | "patternProperties" if "object" in kinds:
                yield from ((keyword, inner) for inner in value.values())
            case "additionalProperties" if "object" in kinds:
                yield keyword, value


def _all(schema: Schema) -> Iterator[dict[str, Any]]:
    """A schema and those within it, not those that it refers to."""
    if isinstance(schema, dict):
        yield schema
        for keyword, inner in _parts(schema):
            if keyword != "$ref":
                yield from _all(inner)


def _is_finite(schema: Schema, finite: set[str]) -> bool:
    """Whether something satisfies a schema, given the names of schemas that something satisfies; in doubt, yes."""
    if isinstance(schema, bool):
        return schema
    if "enum" in schema or "const" in schema:
        return True
    return (
        ("$ref" not in schema or schema["$ref"].removeprefix(DEFINITION) in finite)
        and all(_is_finite(inner, finite) for inner in schema.get("allOf", ()))
        and all(any(_is_finite(inner, finite) for inner in schema[key]) for key in ("anyOf", "oneOf") if key in schema)
        and any(_has_finite(kind, schema, finite) for kind in schema.get("type", ["null"]))
    )


def _has_finite(kind: str, schema: dict[str, Any], finite: set[str]) -> bool:
    if kind == "object":
        named, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        others = others if "patternProperties" not in schema else True
        return all(_is_finite(named.get(name, others), finite) for name in schema.get("required", ()))
    if kind == "array":
        first, least = schema.get("prefixItems", []), schema.get("minItems", 0)
        needed = [*first[:least], *([schema.get("items", True)] if least > len(first) else [])]
        return all(_is_finite(inner, finite) for inner in needed)
    return True
