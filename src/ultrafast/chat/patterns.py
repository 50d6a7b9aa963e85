"""The regular expressions of JSON Schema, in the dialect of llguidance.

Schemas write patterns as ECMA-262 has them. The library reads those of Rust, in which the same characters may mean
something else (``[a[b]`` or ``[a&&b]``, say), and for which ``.`` and ``\\s`` are other characters. So a pattern is
read here and written anew, from the few parts that are the same in both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MAX_SIZE = 20_000  # single characters that a pattern stands for, repetitions written out
_MAX_DEPTH = 50  # groups in groups
_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)

_Ranges = list[tuple[int, int]]  # code points, both ends included

# JSON text has no short way to write these, and we let no output write characters in the long one: see `schema`.
_UNSPELLABLE: _Ranges = [(0x00, 0x07), (0x0B, 0x0B), (0x0E, 0x1F), (0x7F, 0x7F)]
_DIGIT: _Ranges = [(0x30, 0x39)]
_WORD: _Ranges = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_LINE_END: _Ranges = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]
_SPACE: _Ranges = [
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
    (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
]  # fmt: skip
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D}
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d+)(,)?(\d+)?\})")
_GROUP = re.compile(r"\((?:\?:|\?P?<[A-Za-z_$][\w$]*>|(?!\?))")
_PROPERTY = re.compile(r"[pP]\{[A-Za-z0-9_=]{1,60}\}")
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}")


class PatternProblem(ValueError):
    """Why a pattern cannot be guaranteed."""


def library_pattern(pattern: str) -> str:
    """``pattern`` (ECMA-262) for the library.

    Raises:
        PatternProblem: it is wrong, too large, or looks around or back, which no grammar can.
    """
    reader = _Reader(pattern)
    text, size = reader.alternatives(0)
    if reader.position < len(pattern):
        raise PatternProblem(f"has a ')' too many at position {reader.position}")
    if size > _MAX_SIZE:
        raise PatternProblem(f"stands for texts of {size} parts with its repetitions; {_MAX_SIZE} are allowed")
    return text


@dataclass
class _Reader:
    pattern: str
    position: int = 0

    def alternatives(self, depth: int) -> tuple[str, int]:
        """What stands up to a ``)`` or the end: its text for the library, and its size."""
        if depth > _MAX_DEPTH:
            raise PatternProblem(f"has groups within more than {_MAX_DEPTH} others")
        text, size = "", 0
        while self.position < len(self.pattern) and self.pattern[self.position] != ")":
            if self._take("|"):
                text += "|"
                continue
            part, part_size = self._repeated(depth)
            text, size = text + part, size + part_size
        return text, size

    def _repeated(self, depth: int) -> tuple[str, int]:
        start = self.position
        anchor = self.pattern[start] in "^$"
        text, size = self._atom(depth)
        found = _QUANTIFIER.match(self.pattern, self.position)
        if found is None:
            return text, size
        if anchor:
            raise PatternProblem(f"repeats nothing at position {self.position}")
        self.position = found.end()
        least, comma, most = found.groups()
        self._take("?")  # takes as little as it can: the same texts
        if self.position < len(self.pattern) and self.pattern[self.position] in "*+?":
            raise PatternProblem(f"repeats nothing at position {self.position}")
        if least is None:
            return text + found[0], size
        if most is not None and _number(most) < _number(least):
            raise PatternProblem(f"has {found[0]} with its numbers out of order")
        count = _number(most or least)
        return text + found[0], size * max(1, count + (bool(comma) and most is None))

    def _atom(self, depth: int) -> tuple[str, int]:
        character = self.pattern[self.position]
        if character == "(":
            return self._group(depth)
        if character == "[":
            return self._class(), 1
        self.position += 1
        if character in "^$":
            return character, 0
        if character == ".":
            return _written(_inverse(_LINE_END)), 1
        if character == "\\":
            return self._escape(in_class=False), 1
        if character in "*+?" or _QUANTIFIER.match(self.pattern, self.position - 1):
            raise PatternProblem(f"repeats nothing at position {self.position - 1}")
        return _spelled(ord(character)), 1

    def _group(self, depth: int) -> tuple[str, int]:
        opening = _GROUP.match(self.pattern, self.position)
        if opening is None:
            raise PatternProblem(
                f"has {self.pattern[self.position : self.position + 3]!r}, which no grammar can look for"
            )
        self.position = opening.end()
        text, size = self.alternatives(depth + 1)
        if not self._take(")"):
            raise PatternProblem("has a '(' that nothing closes")
        return f"(?:{text})", size

    def _class(self) -> str:
        self.position += 1
        negated = self._take("^")
        ranges: _Ranges = []
        properties = ""
        while not self._take("]"):
            low = self._member()
            if isinstance(low, str):
                properties += low
                continue
            if len(low) == 1 and low[0][0] == low[0][1] and self._at_range():
                self.position += 1
                high = self._member()
                if isinstance(high, str) or high[0][0] != high[-1][1] or high[0][0] < low[0][0]:
                    raise PatternProblem(f"has a range that is none before position {self.position}")
                low = [(low[0][0], high[0][0])]
            ranges += low
        if not properties:
            return _written(_inverse(ranges) if negated else ranges)
        return f"[{'^' if negated else ''}{_members(_inverse(_inverse(ranges)))}{properties}]"

    def _at_range(self) -> bool:
        return self.pattern[self.position : self.position + 1] == "-" and self.pattern[self.position + 1 :][:1] != "]"

    def _member(self) -> _Ranges | str:
        """One member of a class: its characters, or a Unicode property as it is written."""
        if self.position >= len(self.pattern):
            raise PatternProblem("has a '[' that nothing closes")
        self.position += 1
        character = self.pattern[self.position - 1]
        if character != "\\":
            return [(ord(character), ord(character))]
        return self._escaped(in_class=True)

    def _escape(self, *, in_class: bool) -> str:
        meant = self._escaped(in_class=in_class)
        return meant if isinstance(meant, str) else _written(meant)

    def _escaped(self, *, in_class: bool) -> _Ranges | str:
        """What an escape stands for; its backslash has been read."""
        rest = self.pattern[self.position : self.position + 70]
        if not rest:
            raise PatternProblem("ends with a lone backslash")
        character = rest[0]
        if found := _PROPERTY.match(rest):
            self.position += found.end()
            return "\\" + found[0]
        if found := _HEX.match(rest):
            self.position += found.end()
            return self._code_point(int(found[1] or found[2] or found[3], 16))
        self.position += 1
        if character.lower() in _CLASSES:
            ranges = _CLASSES[character.lower()]
            return ranges if character.islower() else _inverse(ranges)
        if character in _CONTROLS or (character == "b" and in_class):
            code = _CONTROLS.get(character, 0x08)
        elif not (character.isascii() and character.isalnum()):
            code = ord(character)
        else:
            raise PatternProblem(f"has \\{character}, which no grammar can look for")
        return [(code, code)]

    def _code_point(self, code: int) -> _Ranges:
        if 0xD800 <= code < 0xDC00 and (
            low := re.match(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})", self.pattern[self.position :])
        ):
            self.position += low.end()
            code = 0x10000 + (code - 0xD800) * 0x400 + int(low[1], 16) - 0xDC00
        if code > _LAST or _SURROGATES[0] <= code <= _SURROGATES[1]:
            raise PatternProblem(f"has U+{code:04X}, which is no character")
        return [(code, code)]

    def _take(self, character: str) -> bool:
        found = self.pattern.startswith(character, self.position)
        self.position += found
        return found


def _number(digits: str) -> int:
    return int(digits) if len(digits) < 10 else 10**9  # far too many in any case


def _inverse(ranges: _Ranges) -> _Ranges:
    """All other characters; in order, without overlaps."""
    others, start = [], 0
    for low, high in sorted([*ranges, _SURROGATES]):
        if low > start:
            others.append((start, low - 1))
        start = max(start, high + 1)
    return others + ([(start, _LAST)] if start <= _LAST else [])


def _written(ranges: _Ranges) -> str:
    """A class of those characters that an output can have."""
    possible = _inverse([*_inverse(ranges), *_UNSPELLABLE])
    if not possible:
        raise PatternProblem("asks for a character that no output has")
    return (
        f"[{_members(possible)}]" if len(possible) > 1 or possible[0][0] != possible[0][1] else _spelled(possible[0][0])
    )


def _members(ranges: _Ranges) -> str:
    return "".join(f"\\x{{{low:X}}}-\\x{{{high:X}}}" for low, high in ranges)


def _spelled(code: int) -> str:
    """One character."""
    if any(low <= code <= high for low, high in _UNSPELLABLE) or _SURROGATES[0] <= code <= _SURROGATES[1]:
        raise PatternProblem(f"asks for U+{code:04X}, which no output has")
    character = chr(code)
    return character if character.isalnum() else f"\\x{{{code:X}}}"
