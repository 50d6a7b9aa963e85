"""Keywords of JSON Schema that have no schemas in them: checked, and given as llguidance gets them right."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ultrafast.chat.patterns import PatternProblem, library_pattern

_MAX_REQUIRED = 1_000  # names
_MAX_VALUES = 10_000  # of one enumeration
_MAX_COUNT = 2**31 - 1
_MAX_DEPTH = 50  # of constants
_MAX_INTEGER = 2**53  # the library computes with 64 bit floats
_TYPES = ("null", "boolean", "number", "integer", "string", "array", "object")  # in the library's order
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
_OTHER_FORMATS = (  # of JSON Schema; all else that a format may be is a remark
    *("idn-email", "idn-hostname", "iri", "iri-reference", "json-pointer", "regex", "relative-json-pointer"),
    *("uri-reference", "uri-template"),
)
_SPELT_SHORT = "\b\f\n\r\t"  # the only control characters of an output: see `schema`

Path = tuple[str | int, ...]
"""Where in a schema."""


class SchemaProblem(ValueError):
    """What is wrong with a schema, and where."""

    def __init__(self, path: Path, problem: str) -> None:
        pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')[:80]}" for step in path)
        super().__init__(f"{problem} (at #{pointer})" if path else problem)


class NotGuaranteed(SchemaProblem):
    """Nothing is wrong with it, but no grammar can keep it."""


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}"
    kinds = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "a list", type(None): "null"}
    return kinds.get(type(value), f"a {type(value).__name__}")


def pattern(value: Any, path: Path) -> str:
    """A regular expression as the library has it."""
    if not isinstance(value, str):
        raise SchemaProblem(path, f"a pattern is a string, not {kind(value)}")
    try:
        return library_pattern(value)
    except PatternProblem as problem:
        raise NotGuaranteed(path, f"the pattern {value[:80]!r} {problem}") from None


def constant(value: Any, path: Path, depth: int = 0) -> Any:
    """A value that an output can have."""
    if depth > _MAX_DEPTH:
        raise SchemaProblem(path[:_MAX_DEPTH], f"values within more than {_MAX_DEPTH} others")
    match kind(value):
        case "a string":
            if any((c < " " and c not in _SPELT_SHORT) or c == "\x7f" for c in value):
                raise NotGuaranteed(path, "a control character, which no output has")
        case "a number":
            if abs(value) > _MAX_INTEGER:
                raise NotGuaranteed(path, "a number beyond 2^53, where not all are told apart")
        case "a list":
            return [constant(item, (*path, index), depth + 1) for index, item in enumerate(value)]
        case "an object":
            return {name: constant(item, (*path, name), depth + 1) for name, item in value.items()}
        case "a boolean" | "null":
            pass
        case other:
            raise SchemaProblem(path, f"{other} is no JSON value")
    return value


def _type(schema: Mapping[str, Any], keyword: str, path: Path) -> Any:
    value = schema[keyword]
    names = value if isinstance(value, list) else [value]
    if not names or any(name not in _TYPES for name in names):
        raise SchemaProblem(path, f"type is one of {', '.join(_TYPES)}, or a list of some")
    return [name for name in _TYPES if name in names]


def _enum(schema: Mapping[str, Any], keyword: str, path: Path) -> Any:
    value = schema[keyword]
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_VALUES:
        raise SchemaProblem(path, f"enum is a list of 1 to {_MAX_VALUES} values")
    return constant(value, path)


def _const(schema: Mapping[str, Any], keyword: str, path: Path) -> Any:
    return constant(schema[keyword], path)


def _count(schema: Mapping[str, Any], keyword: str, path: Path) -> Any:
    value = schema[keyword]
    if kind(value) != "a number" or value != int(value) or not 0 <= value <= _MAX_COUNT:
        raise SchemaProblem(path, f"{keyword} is an integer from 0 to {_MAX_COUNT}")
    return int(value)


def _min_properties(schema: Mapping[str, Any], keyword: str, path: Path) -> Any:
    value = _count(schema, keyword, path)
    # An output may repeat a name that `properties` does not list, which counts once: two of those may be one.
    required = schema.get("required", ())
    if value > (len(set(required)) if isinstance(required, list) else 0) + 1:
        raise NotGuaranteed(path, "minProperties can be one more than there are required properties, and not larger")
    return value


def _limit(schema: Mapping[str, Any], keyword: str, path: Path) -> Any:
    value = schema[keyword]
    if isinstance(value, bool) and keyword.startswith("exclusive"):
        return value  # as draft 4 has it
    if kind(value) != "a number":
        raise SchemaProblem(path, f"{keyword} is a number, not {kind(value)}")
    if (value > _MAX_INTEGER) if keyword.lower().endswith("minimum") else (value < -_MAX_INTEGER):
        raise NotGuaranteed(path, "numbers beyond 2^53 are not told apart")
    return min(max(value, -_MAX_INTEGER), _MAX_INTEGER)  # what lies beyond is not written, though it may be


def _multiple(schema: Mapping[str, Any], keyword: str, path: Path) -> Any:
    value = schema[keyword]
    if kind(value) != "a number" or not 0 < value <= _MAX_INTEGER:
        raise SchemaProblem(path, "multipleOf is a number above 0, and at most 2^53")
    return value


def _required(schema: Mapping[str, Any], keyword: str, path: Path) -> Any:
    value = schema[keyword]
    if not isinstance(value, list) or len(value) > _MAX_REQUIRED or not all(isinstance(name, str) for name in value):
        raise SchemaProblem(path, f"required is a list of names, {_MAX_REQUIRED} at most")
    return value


def _pattern(schema: Mapping[str, Any], keyword: str, path: Path) -> Any:
    return pattern(schema[keyword], path)


def _format(schema: Mapping[str, Any], keyword: str, path: Path) -> Any:
    value = schema[keyword]
    if not isinstance(value, str):
        raise SchemaProblem(path, f"format is a string, not {kind(value)}")
    types = schema.get("type", "string")
    if value in _OTHER_FORMATS and "string" in (types if isinstance(types, list) else [types]):
        raise NotGuaranteed(path, f"the format {value[:80]!r} is none of {', '.join(_FORMATS)}")
    return value if value in _FORMATS else "unknown"  # the library's word for any text


PLAIN: dict[str, Callable[[Mapping[str, Any], str, Path], Any]] = {
    "type": _type,
    **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength", "maxProperties"), _count),
    "minProperties": _min_properties,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _limit),
    "multipleOf": _multiple,
    "required": _required,
    "pattern": _pattern,
    "format": _format,
    "enum": _enum,
    "const": _const,
}
"""Each reads one keyword: ``(schema, keyword, path)`` to its value for the library, or `SchemaProblem`."""
