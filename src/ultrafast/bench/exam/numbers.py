"""Numbers as people and models write them, and whether two are one answer."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_RELATIVE = 1e-3  # of a number that is not whole: what rounding to four digits may change
_LONGEST = 60

_DECIMAL = r"(?:\d{1,3}(?:(?:,|\\,|[  ’'_])\d{3})+|\d+)?(?:\.\d+)?"
_SIGNED = re.compile(rf"([-+]?)\s*[$€£¥]?\s*({_DECIMAL})")
_POWER = re.compile(r"\s*(?:[eE]|(?:[×x*·]|\\times|\\cdot)\s*10\s*(?:\^|\*\*)\s*)\s*(?:\{\s*)?([-+]?\d{1,3})(?:\s*\})?")
_FRACTION = re.compile(r"([-+]?)\s*\\[dt]?frac\s*\{\s*(\d{1,15})\s*\}\s*\{\s*(\d{1,15})\s*\}")
_POWER_OF_TEN = re.compile(r"([-+]?)\s*10\s*(?:\^|\*\*)\s*\{?\s*([-+]?\d{1,3})\s*\}?")
_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_NO_UNIT = re.compile(r"\b(?:or|and|to|is|not|plus|minus|times)\b|[,;:±]|^\s*[-+*/^=(]|(?:\S+\s+){5}", re.IGNORECASE)
_RATIO = re.compile(r"([-+]?)\s*(\d{1,15})\s*/\s*(\d{1,15})")


@dataclass(frozen=True, slots=True)
class Number:
    """A number.

    Attributes:
        digit: the size of its last written digit (0.01 for 3.14); 0 for fractions, which are exact.
        unit: what is written behind it.
    """

    value: float
    digit: float
    unit: str

    @property
    def is_whole(self) -> bool:
        return self.digit >= 1


def number_in(text: str) -> Number | None:
    """The number that a text is, alone or with a unit; ``None`` where it is something else, such as two numbers."""
    text = text.replace("−", "-").replace("–", "-").replace("\\%", "%").replace("$", " ").strip()
    text = re.sub(r"^(?:(?:approximately|approx\.?|about|roughly|exactly)\s+|[≈~=]\s*|[a-zA-Z]\s*=\s*)", "", text)
    if len(text) > _LONGEST:
        return None
    if text.casefold() in _WORDS:
        return Number(_WORDS.index(text.casefold()), 1.0, "")
    if match := _POWER_OF_TEN.match(text):
        power = int(match[2])
        return _number(_sign(match[1]) * 10.0**power, 10.0**power, text[match.end() :]) if power <= 300 else None
    for pattern in (_FRACTION, _RATIO):
        if match := pattern.match(text):
            if int(match[3]) == 0:
                return None
            return _number(_sign(match[1]) * int(match[2]) / int(match[3]), 0.0, text[match.end() :])
    match = _SIGNED.match(text)
    if match is None or not match[2] or match[2] == ".":
        return None
    digits = re.sub(r"[^\d.]", "", match[2])
    power, rest = 0, text[match.end() :]
    if scaled := _POWER.match(rest):
        power, rest = int(scaled[1]), rest[scaled.end() :]
    value = _sign(match[1]) * float(f"{digits}e{power}")
    decimals = len(digits.partition(".")[2])
    return _number(value, 10.0 ** (power - decimals), rest) if math.isfinite(value) else None


def is_same(answer: Number, reference: Number) -> bool:
    """Whether an answer is the reference: whole numbers exactly, others up to rounding."""
    if answer.unit and reference.unit and answer.unit != reference.unit:
        return False
    value = answer.value
    if value != reference.value and "%" in (answer.unit, reference.unit) and "" in (answer.unit, reference.unit):
        value = value / 100 if answer.unit else value * 100  # 50 % and 0.5
    if reference.is_whole:
        return value == reference.value
    slack = max(reference.digit / 2, _RELATIVE * abs(reference.value))
    return abs(value - reference.value) <= slack * (1 + 1e-9)


def _number(value: float, digit: float, rest: str) -> Number | None:
    """What is written behind it is a unit when it is short and no second number: "42 or 43" is no answer."""
    rest = re.sub(r"\\(?:text|mathrm|,|;|!| )|[{}]|\([^()\d]*\)|^\.\s[^\d]*$", "", rest)
    if re.search(r"\d", re.sub(r"(?:\^|\*\*)?-?[23]\b|[²³]", "", rest)) or _NO_UNIT.search(rest):
        return None
    unit = "".join(rest.split()).rstrip(".").casefold()
    return Number(value, digit, {"percent": "%"}.get(unit, unit))


def _sign(sign: str) -> int:
    return -1 if sign == "-" else 1
