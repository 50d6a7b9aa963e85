"""Thousands of lines as few: messages that differ in their numbers alone are shown once, where they first came."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

_HEAD = re.compile(r"\S+ (?P<clock>\d\d:\d\d:\d\d)\S* (?P<rest>.*)")
_VARIABLE = re.compile(r"\d+")


@dataclass(frozen=True)
class Shape:
    """A kind of message.

    Attributes:
        line: the first of its kind, as it is in the log.
        count: how many there are.
    """

    line: str
    count: int

    @property
    def message(self) -> str:
        """The line without its date."""
        return self.line.split(" ", 1)[1]

    def __str__(self) -> str:
        """What a model reads: the message on a line of its own, so that copying it is quoting it."""
        return self.message if self.count == 1 else f"{self.message}\n  and {self.count - 1} like it"


def shape_of(line: str) -> str:
    """What lines of one kind have in common."""
    head = _HEAD.fullmatch(line)
    return _VARIABLE.sub("#", head["rest"] if head else line)


def condense(lines: list[str]) -> list[Shape]:
    """The kinds of messages, in the order in which they first came."""
    counts = Counter(map(shape_of, lines))
    firsts: dict[str, str] = {}
    for line in lines:
        firsts.setdefault(shape_of(line), line)
    return [Shape(line, counts[shape]) for shape, line in firsts.items()]


def chunks(shapes: list[Shape], size: int) -> list[list[Shape]]:
    """At most ``size`` together, as evenly as they go."""
    number = -(-len(shapes) // size)
    bounds = [len(shapes) * index // number for index in range(number + 1)]
    return [shapes[start:end] for start, end in pairwise(bounds)]
