"""What one rendering of a chat template may spend, and what operations with large results cost.

A container's weight counts everything below it as often as it appears, as printing or comparing it would: ``[x, x]``
nested forty deep is refused although it takes little memory.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import Any

MAX_SECONDS = 3.0  # of wall clock, for one rendering
MAX_CHARS = 2 << 20  # of one string, and of the rendered prompt
_MAX_WEIGHT = 16 << 20  # of one value: characters, and _ELEMENT for each element
_MAX_TOTAL = 32 << 20  # of everything one rendering makes
_MAX_DEPTH = 100  # of containers in containers: C code recurses over them
_MAX_SEARCH = 64 << 20  # of two lengths multiplied
_MAX_BITS = 4096  # of an integer
_ELEMENT = 64
_OPERATION = 16  # what any operation costs, in characters
_SHORT = 256  # strings up to this length are paid for each time they turn up, longer ones once
_UNKNOWN = (None,)
_WIDTH = re.compile(r"%(?:\([^)]*\))?[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?")


class OutOfBoundsError(Exception):
    """The template wanted more time or memory than one rendering may have."""


class Budget:
    """What one rendering may still spend."""

    def __init__(self) -> None:
        self.deadline = time.monotonic() + MAX_SECONDS
        self.left = _MAX_TOTAL
        # id → value (kept alive, so that ids stay theirs), weight, depth. Values cannot change in this sandbox.
        self.known: dict[int, tuple[Any, int, int]] = {}

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise OutOfBoundsError(f"makes more than {_MAX_TOTAL >> 20} million characters in all")
        if time.monotonic() > self.deadline:
            raise OutOfBoundsError(f"takes longer than {MAX_SECONDS:g} seconds")

    def room(self, size: int) -> None:
        """Refuse an operation before it makes a value of ``size`` characters."""
        if size > MAX_CHARS:
            raise OutOfBoundsError(f"makes a value of more than {MAX_CHARS >> 20} million characters")
        self.spend(_OPERATION)

    def bits(self, size: int) -> None:
        """Refuse an operation before it makes an integer of ``size`` bits."""
        if size > _MAX_BITS:
            raise OutOfBoundsError(f"makes an integer of more than {_MAX_BITS} bits")

    def search(self, text: Any, part: Any) -> None:
        """Refuse to look for ``part`` (or strip its characters) where that could take quadratic time."""
        if isinstance(text, str) and isinstance(part, str) and len(text) * len(part) > _MAX_SEARCH:
            raise OutOfBoundsError("searches a long text for another long one")

    def text(self, value: Any) -> str:
        """``str(value)``."""
        self.room(self.weigh(value, 0)[0])
        return str(value)

    def admit(self, value: Any) -> Any:
        """Pay for one operation and its result, and refuse a result that later operations could choke on."""
        self.spend(_OPERATION)
        self.weigh(value, 0)
        return value

    def counted(self, iterable: Iterable[Any]) -> Iterator[Any]:
        """The items, each paid for."""
        for item in iterable:
            self.spend(_OPERATION)
            yield item

    def items(self, iterable: Iterable[Any]) -> list[Any]:
        """``list(iterable)``."""
        if isinstance(iterable, str):
            self.room(8 * len(iterable))
        return list(self.counted(iterable))

    def weigh(self, value: Any, level: int) -> tuple[int, int]:
        """Weight and depth of ``value``; what is new is paid for."""
        if isinstance(value, (str, bytes)):
            return self._weigh_text(value), 0
        if isinstance(value, int):
            self.bits(value.bit_length())
            return _ELEMENT, 0
        if isinstance(value, range):
            return _ELEMENT * len(value), 1
        if not isinstance(value, (list, tuple, dict, set, frozenset)):
            return _ELEMENT, 0  # a float, None, or an object that prints short and holds nothing that can be reached
        if id(value) in self.known:
            _, weight, depth = self.known[id(value)]
            return weight, depth
        return self._weigh_container(value, level)

    def _weigh_text(self, text: str | bytes) -> int:
        size = len(text)
        if size > MAX_CHARS:
            raise OutOfBoundsError(f"makes a string of more than {MAX_CHARS >> 20} million characters")
        if size <= _SHORT:
            self.spend(size)
        elif id(text) not in self.known:
            self.spend(size)
            self.known[id(text)] = (text, _ELEMENT + size, 0)
        return _ELEMENT + size

    def _weigh_container(self, value: Any, level: int) -> tuple[int, int]:
        parts: Iterable[Any] = (part for pair in value.items() for part in pair) if isinstance(value, dict) else value
        if len(value) * _ELEMENT > _MAX_WEIGHT or level > _MAX_DEPTH:
            raise OutOfBoundsError("makes a list or mapping that is too large or too deep")
        self.spend(8 * len(value))
        weight, depth = _ELEMENT, 1
        for part in parts:
            # Most parts are known: this is the inner loop of templates that build or cut lists of messages.
            part_weight, part_depth = self.known.get(id(part), _UNKNOWN)[1:] or self.weigh(part, level + 1)
            weight += part_weight
            if part_depth >= depth:
                depth = part_depth + 1
        if weight > _MAX_WEIGHT or depth > _MAX_DEPTH:
            raise OutOfBoundsError("makes a list or mapping that is too large or too deep")
        self.known[id(value)] = (value, weight, depth)
        return weight, depth


budget: ContextVar[Budget] = ContextVar("budget")  # of the rendering in progress, set by ChatTemplate


def check_add(pay: Budget, left: Any, right: Any) -> None:
    for kinds, size in _SEQUENCES:
        if isinstance(left, kinds) and isinstance(right, kinds):
            pay.room(size * (len(left) + len(right)))


def check_multiply(pay: Budget, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        pay.bits(left.bit_length() + right.bit_length())
    for sequence, count in ((left, right), (right, left)):
        for kinds, size in _SEQUENCES:
            if isinstance(sequence, kinds) and isinstance(count, int):
                pay.room(size * len(sequence) * count)


def check_power(pay: Budget, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        pay.bits(left.bit_length() * right)


def check_format(pay: Budget, template: Any, values: Any) -> None:
    """``template % values``: no width or precision from the values or of more than four digits."""
    if not isinstance(template, (str, bytes)):
        return
    fields = _WIDTH.findall(template if isinstance(template, str) else template.decode("latin-1"))
    widths = [width for field in fields for width in field if width]
    if any(width == "*" or len(width) > 4 for width in widths):
        raise OutOfBoundsError("formats with a width that is computed or of more than four digits")
    pay.room(len(template) + sum(map(int, widths)) + len(fields) * pay.weigh(values, 0)[0])


BINOP_CHECKS: dict[str, Callable[[Budget, Any, Any], None]] = {
    "+": check_add,
    "*": check_multiply,
    "**": check_power,
    "%": check_format,
}
_SEQUENCES: tuple[tuple[tuple[type[Sized], ...], int], ...] = (((str, bytes), 1), ((list, tuple), 8))


def join(pay: Budget, separator: str, parts: Iterable[Any]) -> str:
    """``separator.join``, with anything allowed as a part."""
    texts = []
    size = 0
    for part in parts:
        texts.append(pay.text(part))
        pay.room(size := size + len(separator) + len(texts[-1]))
    return separator.join(texts)


def replace(pay: Budget, text: str, old: str, new: str, count: int = -1) -> str:
    """``str.replace``."""
    pay.room(len(text) + text.count(old) * len(new))
    return text.replace(old, new, count)
