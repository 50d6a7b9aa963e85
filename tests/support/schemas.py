"""Random JSON Schemas of the kinds that people write: satisfiable, and not too large."""

from __future__ import annotations

import random
from typing import Any

_WORDS = ["name", "id", "size", "tags", "größe", "item list", "a/b", 'say "hi"', "unit", "x"]
_PATTERNS = [
    "^[a-z]{1,8}$", "^[A-Z]{2}-\\d{3}$", "^(red|green|blue)$", "\\d", "^\\w+( \\w+){0,3}$",
    "^[^\\s@]{1,9}@[a-z]{2,9}\\.com$", "^#[0-9a-fA-F]{6}$", "a[b[]c|^z", "^.{2,5}$", "^[ä-ü]{1,4}\\u00e9?$",
]  # fmt: skip
_FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "email", "hostname", "duration"]


class SchemaMaker:
    """Makes schemas from a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._definitions: list[str] = []

    def schema(self, depth: int = 3) -> dict[str, Any]:
        """An object schema, with definitions that may refer to themselves."""
        rng = self._rng
        self._definitions = [f"d{number}" for number in range(rng.randrange(3))]
        definitions = {}
        for name in self._definitions:
            inner = {"type": "object", "properties": {"v": self._leaf(), "next": {"$ref": f"#/$defs/{name}"}}}
            definitions[name] = inner | {"required": ["v"], "additionalProperties": False}
        root = self._object(depth)
        return {**root, "$defs": definitions} if definitions else root

    def _any(self, depth: int) -> dict[str, Any]:
        kinds = [self._leaf, self._leaf, self._number, self._string]
        if depth > 0:
            kinds += [lambda: self._object(depth - 1), lambda: self._array(depth - 1), lambda: self._choice(depth - 1)]
            if self._definitions:
                kinds.append(lambda: {"$ref": f"#/$defs/{self._rng.choice(self._definitions)}"})
        return self._rng.choice(kinds)()

    def _leaf(self) -> dict[str, Any]:
        rng = self._rng
        values = [
            None,
            True,
            False,
            0,
            -3,
            1.5,
            1e-3,
            "",
            "yes",
            "tab\t",
            'quo"te',
            "naïve 🚀",
            [1, "a"],
            {"k": [None]},
        ]
        return rng.choice(
            [
                {"enum": rng.sample(values, rng.randint(1, 5))},
                {"const": rng.choice(values)},
                {"type": rng.choice(["boolean", "null", "integer"])},
                {"type": ["integer", "null"]},
                {"type": "string", "enum": rng.sample(["low", "mid", "high", "very high"], 2)},
            ]
        )

    def _number(self) -> dict[str, Any]:
        rng = self._rng
        low = rng.choice([-1000, -7, 0, 1, 12, 0.5, -2.25])
        schema: dict[str, Any] = {"type": rng.choice(["integer", "number"])}
        if rng.random() < 0.7:
            schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.7:
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([2, 40, 999.5])
        if rng.random() < 0.2:
            number = {"multipleOf": rng.choice([2, 3, 5, 0.5, 10]), "minimum": -50, "maximum": 700}
            schema = {"type": schema["type"], **number}
        return schema

    def _string(self) -> dict[str, Any]:
        rng = self._rng
        least = rng.randrange(4)
        return rng.choice(
            [
                {"type": "string", "minLength": least, "maxLength": least + rng.randrange(12)},
                {"type": "string", "pattern": rng.choice(_PATTERNS), "maxLength": 40},
                {"type": "string", "format": rng.choice(_FORMATS)},
                {"type": "string", "maxLength": 20},
            ]
        )

    def _array(self, depth: int) -> dict[str, Any]:
        rng = self._rng
        least = rng.randrange(3)
        schema = {"type": "array", "items": self._any(depth), "minItems": least, "maxItems": least + rng.randrange(3)}
        if rng.random() < 0.2:
            schema |= {"prefixItems": [self._any(depth) for _ in range(rng.randint(1, 2))], "maxItems": least + 2}
        return schema

    def _object(self, depth: int) -> dict[str, Any]:
        rng = self._rng
        names = rng.sample(_WORDS, rng.randint(1, 4))
        schema: dict[str, Any] = {"type": "object", "properties": {name: self._any(depth) for name in names}}
        if rng.random() < 0.8:
            schema["required"] = rng.sample(names, rng.randint(0, len(names)))
        schema["additionalProperties"] = rng.choice([False, False, False, {"type": "integer", "minimum": 3}])
        if rng.random() < 0.1:
            schema["patternProperties"] = {"^p_[a-z]{1,3}$": self._leaf()}
        return schema

    def _choice(self, depth: int) -> dict[str, Any]:
        rng = self._rng
        if rng.random() < 0.2:
            tagged = [
                {"type": "object", "properties": {"kind": {"const": kind}, "v": self._leaf()}, "required": ["kind"]}
                for kind in ("a", "b")
            ]
            return {"oneOf": tagged}
        if rng.random() < 0.2:
            return {"allOf": [self._object(depth), {"type": "object", "properties": {"more": self._leaf()}}]}
        return {"anyOf": [self._any(depth) for _ in range(rng.randint(2, 3))]}
