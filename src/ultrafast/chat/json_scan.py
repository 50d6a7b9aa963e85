"""One JSON object, character by character: is it still JSON, where do its members begin and end?"""

from __future__ import annotations

import json
import re

_SPACE = " \t\n\r"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NUMBER_START = re.compile(r"-?(0|[1-9][0-9]*(\.[0-9]*)?|0\.[0-9]*|((0|[1-9][0-9]*)(\.[0-9]+)?[eE][+-]?[0-9]*))?")
_LITERALS = ("true", "false", "null")
_HEX = "0123456789abcdefABCDEF"
_MAX_DEPTH = 200


class NotJsonError(ValueError):
    """What has come so far begins no JSON object."""


class ObjectScanner:
    """Takes the text of a JSON object (RFC 8259, strictly) one character at a time.

    Attributes:
        key: of the member of the object itself, not of one inside it, that is being read or was read last.
        members: of the object itself, those that are complete: the text of each value.
    """

    def __init__(self) -> None:
        self._chars: list[str] = []
        self.key: str | None = None
        self._value_at: int | None = None  # where the value of that member begins
        self.members: dict[str, str] = {}
        self._open: list[str] = []  # the closing brackets that are due
        self._expects = "object"
        self._token_at = 0  # where the string, number or literal that is being read begins
        self._hex_due = 0

    @property
    def text(self) -> str:
        """What was taken."""
        return self._since(0)

    @property
    def done(self) -> bool:
        """The object is complete."""
        return self._expects == "nothing"

    @property
    def value_size(self) -> int:
        """How many characters of `value` there are."""
        return 0 if self._value_at is None else len(self._chars) - self._value_at

    @property
    def value(self) -> str:
        """What came since the value of the member ``key`` began."""
        return "" if self._value_at is None else self._since(self._value_at)

    def take(self, char: str) -> None:
        """Take the next character.

        Raises:
            NotJsonError: it can not come next.
        """
        if self._expects in ("number", "literal") and char in _SPACE + ",]}":
            self._end_scalar()
        _STEPS[self._expects](self, char)
        self._chars.append(char)

    # ---- one method for each thing that may be due ----

    def _object(self, char: str) -> None:
        if char != "{":
            raise NotJsonError
        self._open.append("}")
        self._expects = "first key"

    def _key(self, char: str) -> None:
        if char == "}" and self._expects == "first key":
            self._close(char)
        elif char == '"':
            self._token_at = len(self._chars)
            self._expects = "key text"
        elif char not in _SPACE:
            raise NotJsonError

    def _colon(self, char: str) -> None:
        if char == ":":
            self._expects = "value"
            if len(self._open) == 1:
                self._value_at = None
        elif char not in _SPACE:
            raise NotJsonError

    def _value(self, char: str) -> None:
        if char in _SPACE:
            return
        if char == "]" and self._expects == "first item":
            self._close(char)
            return
        expects = "literal" if char in "tfn" else "number" if char in "-0123456789" else _OPENINGS.get(char)
        if expects is None or len(self._open) == _MAX_DEPTH:
            raise NotJsonError
        if len(self._open) == 1:
            self._value_at = len(self._chars)
        self._token_at = len(self._chars)
        self._expects = expects
        if char in "{[":
            self._open.append("}" if char == "{" else "]")

    def _string(self, char: str) -> None:
        if char == '"':
            if self._expects == "key text":
                if len(self._open) == 1:
                    self.key = json.loads(self._since(self._token_at) + char)
                self._expects = "colon"
            else:
                self._end_value(char)
        elif char == "\\":
            self._expects = "key escape" if self._expects == "key text" else "string escape"
        elif char < " ":
            raise NotJsonError

    def _escape(self, char: str) -> None:
        kind = self._expects.split()[0]
        if self._hex_due:
            if char not in _HEX:
                raise NotJsonError
            self._hex_due -= 1
        elif char == "u":
            self._hex_due = 4
        elif char not in '"\\/bfnrt':
            raise NotJsonError
        if not self._hex_due:
            self._expects = "key text" if kind == "key" else "string"

    def _scalar(self, char: str) -> None:
        text = self._since(self._token_at) + char
        if self._expects == "number":
            if not _NUMBER_START.fullmatch(text):
                raise NotJsonError
        elif not any(literal.startswith(text) for literal in _LITERALS):
            raise NotJsonError

    def _comma(self, char: str) -> None:
        if char == self._open[-1]:
            self._close(char)
        elif char == ",":
            self._expects = "key" if self._open[-1] == "}" else "value"
        elif char not in _SPACE:
            raise NotJsonError

    def _nothing(self, char: str) -> None:
        raise NotJsonError

    # ---- ends ----

    def _end_scalar(self) -> None:
        text = self._since(self._token_at)
        if not (_NUMBER.fullmatch(text) if self._expects == "number" else text in _LITERALS):
            raise NotJsonError
        self._end_value("")

    def _close(self, char: str) -> None:
        self._open.pop()
        if self._open:
            self._end_value(char)
        else:
            self._expects = "nothing"

    def _end_value(self, last: str) -> None:
        self._expects = "comma"
        if len(self._open) == 1 and self.key is not None and self._value_at is not None:
            self.members[self.key] = self._since(self._value_at) + last

    def _since(self, start: int) -> str:
        return "".join(self._chars[start:])


_OPENINGS = {"{": "first key", "[": "first item", '"': "string"}
_STEPS = {
    "object": ObjectScanner._object,
    "first key": ObjectScanner._key,
    "key": ObjectScanner._key,
    "key text": ObjectScanner._string,
    "key escape": ObjectScanner._escape,
    "colon": ObjectScanner._colon,
    "value": ObjectScanner._value,
    "first item": ObjectScanner._value,
    "string": ObjectScanner._string,
    "string escape": ObjectScanner._escape,
    "number": ObjectScanner._scalar,
    "literal": ObjectScanner._scalar,
    "comma": ObjectScanner._comma,
    "nothing": ObjectScanner._nothing,
}
