"""Reads a JSON Schema, and writes it anew with what llguidance gets right, in the order in which it goes through it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from fractions import Fraction
from math import lcm
from typing import Any
from urllib.parse import unquote

from ultrafast.chat.schema_graph import DEFINITION, Schema
from ultrafast.chat.schema_keywords import PLAIN, NotGuaranteed, Path, SchemaProblem, kind, pattern

_MAX_DEPTH = 50  # schemas within each other: the library reads JSON of 127 levels, which is two a schema
_MAX_SCHEMAS = 5_000  # in one
_MAX_REFERENCES = 500  # schemas that are referred to
_MAX_PROPERTIES = 1_000  # of one object: the work grows with their square
_MAX_PATTERNS = 16  # of the names of one object, likewise
_MAX_REMAINDERS = 100_000  # of numbers by what they must be multiples of: 10 µs and 400 bytes each
_UNSUPPORTED = frozenset(
    ["$dynamicRef", "$recursiveRef", "contains", "dependencies", "dependentRequired", "dependentSchemas", "if", "not"]
) | {"propertyNames", "unevaluatedItems", "unevaluatedProperties", "uniqueItems"}
_WITHOUT_EFFECT: dict[str, list[Any]] = {
    "uniqueItems": [False],
    "unevaluatedItems": [True, {}],
    "unevaluatedProperties": [True, {}],
}
_WITHIN = ("prefixItems", "items", "properties", "patternProperties", "additionalProperties")
_IN_PLACE = ("enum", "const", "$ref", "anyOf", "oneOf", "allOf")
_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07", "2019-09")


class SchemaReader:
    """Reads one schema.

    Args:
        document: the schema.
        lenient: leave out what cannot be guaranteed, rather than refuse it.
    """

    def __init__(self, document: Any, *, lenient: bool) -> None:
        self._document = document
        self._lenient = lenient
        self._names: dict[Path, str] = {}  # of what references point to
        self._to_read: list[Path] = []
        self._inlined: set[Path] = set()  # what is being read in place of a reference to it
        self._depth = self._num_schemas = 0
        self._remainders = 1
        self._leniently = suppress(NotGuaranteed) if lenient else nullcontext()
        uri = document.get("$schema") if isinstance(document, Mapping) else None
        self._is_old = isinstance(uri, str) and any(draft in uri for draft in _OLD_DRAFTS)

    def read(self) -> tuple[Schema, dict[str, Schema]]:
        """The schema anew; and by name what it and they refer to, as `DEFINITION` + name.

        Raises:
            SchemaProblem: it is wrong, exceeds a limit, or has what cannot be guaranteed.
        """
        root = self._schema(self._document, ())
        definitions = {}
        while self._to_read:
            path = self._to_read.pop()
            definitions[self._names[path]] = self._schema(self._target(path), path)
        return root, definitions

    def _schema(self, schema: Any, path: Path) -> Schema:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise SchemaProblem(path, f"a schema is an object or a boolean, not {kind(schema)}")
        self._num_schemas += 1
        if self._num_schemas > _MAX_SCHEMAS:
            raise SchemaProblem(path, f"it has more than {_MAX_SCHEMAS} schemas")
        if self._depth == _MAX_DEPTH:
            raise SchemaProblem(path, f"it has schemas within more than {_MAX_DEPTH} others")
        read: dict[str, Any] = {}
        self._depth += 1
        try:
            with self._leniently:
                self._check_supported(schema, path)
            # What is in place of this schema meets what stands before it, which is therefore all the rest.
            later = [keyword for keyword in schema if keyword in _IN_PLACE]
            for keyword in [*(k for k in PLAIN if k not in _IN_PLACE), *_WITHIN, *later]:
                if keyword in schema:
                    with self._leniently:
                        read |= self._keyword(schema, keyword, (*path, keyword))
        finally:
            self._depth -= 1
        return read

    def _check_supported(self, schema: Mapping[str, Any], path: Path) -> None:
        for keyword in schema:
            if keyword in _UNSUPPORTED and schema[keyword] not in _WITHOUT_EFFECT.get(keyword, []):
                raise NotGuaranteed((*path, keyword), f"{keyword} is not supported")
        if path and "$id" in schema:
            raise NotGuaranteed((*path, "$id"), "$id changes what references mean, which is supported at the top only")

    def _keyword(self, schema: Mapping[str, Any], keyword: str, path: Path) -> dict[str, Any]:
        value = schema[keyword]
        match keyword:
            case "properties":
                return {keyword: dict(self._named(value, path, _MAX_PROPERTIES))}
            case "patternProperties":
                named = self._named(value, path, _MAX_PATTERNS)
                return {keyword: {pattern(name, (*path, name)): inner for name, inner in named}}
            case "additionalProperties":
                return {keyword: self._schema(value, path)}
            case "items" if isinstance(value, list):  # as drafts before 2020-12 have it
                first = {"prefixItems": self._list(value, path)} if value else {}
                rest = (*path[:-1], "additionalItems")
                return {**first, keyword: self._schema(schema.get("additionalItems", True), rest)}
            case "items":
                return {keyword: self._schema(value, path)}
            case "prefixItems" if self._is_old:
                raise NotGuaranteed(path, "prefixItems is of draft 2020-12, and $schema names an older one")
            case "$ref":
                return {keyword: self._reference(self._resolved(value, path))}
            case "oneOf":
                options = self._list(value, path, inline=True)
                return {keyword: options} if not self._lenient else {} if "anyOf" in schema else {"anyOf": options}
            case "prefixItems" | "anyOf" | "allOf":
                return {keyword: self._list(value, path)}
            case "multipleOf":
                multiple = PLAIN[keyword](schema, keyword, path)
                self._count_remainders(multiple, path)
                return {keyword: multiple}
        return {keyword: PLAIN[keyword](schema, keyword, path)}

    def _count_remainders(self, multiple: float, path: Path) -> None:
        """Any of the schemas may meet any other, and then what satisfies them is a multiple of both."""
        self._remainders = lcm(self._remainders, Fraction(str(multiple)).numerator)
        if self._remainders > _MAX_REMAINDERS:
            raise SchemaProblem(
                path, f"the multiples have {self._remainders} remainders; {_MAX_REMAINDERS} are allowed"
            )

    def _named(self, value: Any, path: Path, most: int) -> list[tuple[str, Schema]]:
        if not isinstance(value, Mapping) or len(value) > most:
            raise SchemaProblem(path, f"{path[-1]} is an object of {most} schemas at most")
        return [(name, self._schema(inner, (*path, name))) for name, inner in value.items()]

    def _list(self, value: Any, path: Path, *, inline: bool = False) -> list[Schema]:
        if not isinstance(value, list) or not value:
            raise SchemaProblem(path, f"{path[-1]} is a list of schemas, one at least")
        read = self._inline if inline else self._schema
        return [read(schema, (*path, index)) for index, schema in enumerate(value)]

    # ---- references ---------------------------------------------------------------------------------------

    def _reference(self, target: Path) -> str:
        if target not in self._names:
            if len(self._names) == _MAX_REFERENCES:
                raise SchemaProblem(target, f"it refers to more than {_MAX_REFERENCES} schemas")
            self._names[target] = str(len(self._names))
            self._to_read.append(target)
        return DEFINITION + self._names[target]

    def _inline(self, schema: Any, path: Path) -> Schema:
        """A schema, with what a reference points to in its place: the library looks into the alternatives of a oneOf,
        to see whether they differ, but not behind references."""
        if not isinstance(schema, Mapping) or "$ref" not in schema or any(k in schema for k in (*PLAIN, *_WITHIN)):
            return self._schema(schema, path)
        target = self._resolved(schema["$ref"], (*path, "$ref"))
        if target in self._inlined:
            return self._schema(schema, path)
        self._inlined.add(target)
        try:
            return self._schema(self._target(target), target)
        finally:
            self._inlined.discard(target)

    def _resolved(self, reference: Any, path: Path) -> Path:
        """Where in the document a reference points."""
        if not isinstance(reference, str):
            raise SchemaProblem(path, f"$ref is a string, not {kind(reference)}")
        if reference != "#" and not reference.startswith("#/"):
            raise NotGuaranteed(path, "references are supported within the schema only, such as #/$defs/name")
        steps = [unquote(step).replace("~1", "/").replace("~0", "~") for step in reference.split("/")[1:]]
        try:
            self._target(tuple(steps))
        except (LookupError, TypeError, ValueError):
            raise SchemaProblem(path, f"{reference[:80]!r} points to nothing") from None
        return tuple(steps)

    def _target(self, path: Path) -> Any:
        found = self._document
        for step in path:
            found = found[int(step)] if isinstance(found, list) else found[step]
        return found
