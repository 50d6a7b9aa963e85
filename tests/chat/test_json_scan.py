"""The scanner takes what is a JSON object, and nothing else; the standard library is the judge."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from hypothesis import given
from hypothesis import strategies as st

from ultrafast.chat.json_scan import NotJsonError, ObjectScanner


def scanned(text: str) -> dict[str, str] | None:
    """The members of a complete object."""
    scanner = ObjectScanner()
    try:
        for char in text:
            scanner.take(char)
    except NotJsonError:
        return None
    return scanner.members if scanner.done else None


def judged(text: str) -> dict[str, Any] | None:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)

    try:
        value = json.loads(text, parse_constant=refuse)
    except ValueError:
        return None
    return value if isinstance(value, dict) and text[0] == "{" and text[-1] == "}" else None


FRAGMENTS = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"',
        " ",
        "\n",
        "\t",
        "\\",
        "\\n",
        "\\u00e9",
        "\\u12",
        "\\x",
        "a",
        "é",
        "\x01",
        "0",
        "1",
        "-",
        "01",
        "1.5",
        ".",
        "e3",
        "E+",
        "true",
        "false",
        "null",
        "nul",
        "NaN",
        '"a":',
        '"b"',
        "{}",
        "[]",
    ]
)


@given(st.lists(FRAGMENTS, max_size=12).map(lambda parts: "{" + "".join(parts) + "}"))
def test_any_text(text: str) -> None:
    members, value = scanned(text), judged(text)
    assert (members is None) == (value is None)
    assert members is None or {key: json.loads(text) for key, text in members.items()} == value


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.data())
def test_any_object_and_one_with_a_character_changed(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()), indent=data.draw(st.sampled_from([None, 1])))
    members = scanned(text)
    assert members is not None
    assert {key: json.loads(item) for key, item in members.items()} == value
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.sampled_from(list('{}[],:"\\ 0-.eatn'))) + text[at + 1 :]
    assert (scanned(changed) is None) == (judged(changed) is None)


def test_depth_has_a_limit() -> None:
    assert scanned('{"a":' * 190 + "1" + "}" * 190) is not None
    assert scanned('{"a":' * 100_000) is None
