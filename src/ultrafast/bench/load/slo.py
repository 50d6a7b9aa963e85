"""What a call must keep to, to count as good: ``ttft=0.5,speed=50``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ultrafast.bench.load.columns import SPEED, Column
from ultrafast.errors import ConfigError

NAMES = {
    "ttft": "ttft_s",
    "ttfat": "ttfat_s",
    "clause": "first_clause_s",
    "e2e": "e2e_s",
    "gap": "longest_gap_s",
    "speed": SPEED,
}
"""Words of the option, and the columns that they bound: seconds at most, or tokens a second at least."""


@dataclass(frozen=True, slots=True)
class Slo:
    bounds: Mapping[str, float]  # by word

    @classmethod
    def parse(cls, text: str) -> Slo:
        """
        Raises:
            ConfigError: not ``NAME=NUMBER[,NAME=NUMBER…]``.
        """
        bounds: dict[str, float] = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            name = name.strip()
            if name not in NAMES:
                raise ConfigError(f"--slo {text!r}: {name!r} is none of {', '.join(NAMES)}")
            try:
                bound = float(value)
            except ValueError:
                bound = math.nan
            if not 0 < bound < math.inf or name in bounds:
                raise ConfigError(f"--slo {text!r}: {name} needs one number above 0, such as ttft=0.5,speed=50")
            bounds[name] = bound
        return cls(bounds)

    def __str__(self) -> str:
        shown = (
            f"{name} ≥ {bound:g} tokens/s" if NAMES[name] == SPEED else f"{name} ≤ {bound:g} s"
            for name, bound in self.bounds.items()
        )
        return ", ".join(shown)

    def met(self, columns: Mapping[str, Column]) -> Sequence[bool]:
        """Call by call. What could not be measured (the speed of an answer in one chunk) counts as kept to."""
        tests = [(columns[NAMES[name]], bound, NAMES[name] == SPEED) for name, bound in self.bounds.items()]
        return [
            all(
                column[row] is None or (column[row] >= bound if at_least else column[row] <= bound)  # type: ignore[operator]
                for column, bound, at_least in tests
            )
            for row in range(len(columns[SPEED]))
        ]
