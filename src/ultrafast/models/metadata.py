"""Typed, range-checked access to GGUF metadata."""

from __future__ import annotations

import math
from typing import Any, NoReturn

from ultrafast.errors import ModelFileError
from ultrafast.models.gguf import GgufFile


class Metadata:
    """The metadata of one file. Keys are relative to ``prefix`` (``llama.``) unless they start with ``general.`` or
    ``split.``.

    Every getter raises ModelFileError that names the key when the value is missing (and has no default), of another
    type or out of range.
    """

    def __init__(self, file: GgufFile) -> None:
        self.path = file.path
        self.prefix = ""
        self._values = file.metadata

    def get(self, key: str) -> Any:
        """The value as it stands, or None."""
        return self._values.get(self._full(key))

    def fail(self, key: str, problem: str) -> NoReturn:
        raise ModelFileError(self.path, f"metadata key {self._full(key)!r} {problem}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self._require(key, default)
        if not isinstance(value, str):
            self.fail(key, f"is {_shown(value)}; it must be a string")
        return value

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """An integer from ``low`` to ``high``."""
        return self._in_range(key, self._require(key, default), low, high)

    def integer_of_layers(self, key: str, num_layers: int, high: int, default: int | None = None) -> int:
        """A size from 1 to ``high`` that may be given once for all layers, or once a layer if all are equal."""
        value = self._require(key, default)
        if isinstance(value, list):
            if len(value) != num_layers or any(item != value[0] for item in value):
                self.fail(key, f"is {_shown(value)}; layers of different sizes are not supported")
            value = value[0]
        return self._in_range(key, value, 1, high)

    def number(self, key: str, *, at_least: float = 0.0, default: float | None = None) -> float:
        """A finite number above 0 and not below ``at_least``."""
        value = self._require(key, default)
        if type(value) not in (int, float) or not (math.isfinite(value) and value > 0 and value >= at_least):
            self.fail(key, f"is {_shown(value)}; it must be a finite number {f'≥ {at_least:g}' if at_least else '> 0'}")
        return float(value)

    def _full(self, key: str) -> str:
        return key if key.startswith(("general.", "split.")) else self.prefix + key

    def _require(self, key: str, default: Any) -> Any:
        value = self.get(key)
        if value is None:
            value = default
        if value is None:
            self.fail(key, "is missing")
        return value

    def _in_range(self, key: str, value: Any, low: int, high: int) -> int:
        if type(value) is not int or not low <= value <= high:
            self.fail(key, f"is {_shown(value)}; it must be an integer from {low} to {high}")
        return value


def _shown(value: Any) -> str:
    text = repr(value[:8] if isinstance(value, (str, list)) and len(value) > 80 else value)
    return text if len(text) <= 80 else text[:80] + "…"
