"""Patterns mean what ECMA-262 says, whatever the library's dialect makes of them."""

from __future__ import annotations

import json
import random
import re

import pytest

from support.grammars import json_value, takes, wander
from support.scripted_engine import ByteTokenizer
from ultrafast.chat.patterns import PatternProblem, library_pattern
from ultrafast.chat.schema import library_schema
from ultrafast.chat.schema_keywords import SchemaProblem
from ultrafast.engine.grammar import Grammars

MATCHES = [
    ("b", "abc"), ("^a|b$", "ax"), ("^$", ""), ("", "any"), ("^(?:a|b){2}$", "ab"), ("^(?<n>a)(?P<m>b)$", "ab"),
    ("^[a[b]c]$", "[c]"), ("^[a&&b]$", "&"), ("^[a-z&&[^b]]$", "b]"), ("^[~~]$", "~"), ("^[\\w-.]$", "-"),
    ("^[-a]$", "-"), ("^[a-]$", "-"), ("^[^a]$", "é"), ("^[^]$", "\n"), ("^[\\]\\^]$", "]"), ("^[\\d-z]$", "-"),
    ("^\\d\\w\\s\\D\\W\\S$", "1_ x-y"), ("^\\s$", "\u2003"), ("^[^\\W\\d]$", "a"), ("^\\n\\t\\r\\f$", "\n\t\r\f"),
    ("^[\\b]$", "\b"), ("^\\x41\\u00e9\\u{1F680}\\ud83d\\ude80$", "Aé🚀🚀"), ("^\\/\\-\\_\\é\\.$", "/-_é."),
    ("^\\p{Lu}[\\p{L}1][^\\P{L}]$", "É1é"), ("^a{,3}$", "a{,3}"), ("^{}]$", "{}]"),
    ("^a{2}b{1,}c{0,2}?d*?e+?f??$", "aabcdde"), ("^.$", "🚀"), ("^#x y$", "#x y"), ("^[\\x00-\\x1f]$", "\n"),
    ("^(|a)b$", "b"), ("^a$|^b$", "b"), ("^(^a)$", "a"),
]  # fmt: skip
DIFFERS = [
    ("^[a[b]c]$", "a"), ("^[a&&b]$", "c"), ("^.$", "\r"), ("^.$", "\u2028"), ("^\\d$", "٣"), ("^\\w$", "é"),
    ("^\\s$", "\x85"), ("^[^a]$", "a"), ("^a{,3}$", "aa"), ("^\\S$", "\ufeff"), ("^[\\w-.]$", "+"), ("a", "b"),
    ("^a$", "ba"),
]  # fmt: skip
REFUSED = {
    "(?=a)": "no grammar can look for", "(?!a)": "no grammar", "(?<=a)b": "no grammar", "\\bfoo": "\\b",
    "(a)\\1": "\\1", "\\k<n>": "\\k", "(?i)a": "'(?i'", "\\Z": "\\Z", "\\cA": "\\c", "(": "nothing closes",
    "a)": "too many", "[a": "nothing closes", "*a": "repeats nothing", "a**": "repeats nothing",
    "a++": "repeats nothing", "^*": "repeats nothing", "a|{2}": "repeats nothing", "a{3,1}": "out of order",
    "[z-a]": "range", "[a-\\d]": "range", "\\": "lone backslash", "\\ud800": "no character",
    "\\u{110000}": "no character", "\\x01": "no output has", "[\\x01\\x7f]": "no output has", "[]": "no output has",
    "\x7f": "no output has", "a{20001}": "20000 are allowed", "((a{99}){99}){99}": "are allowed",
    "a{99999999999999999999}": "are allowed", "(" * 60 + ")" * 60: "within more than 50",
}  # fmt: skip


def _takes(pattern: str, text: str) -> bool:
    return takes({"type": "string", "pattern": pattern}, json.dumps(text, ensure_ascii=False))


@pytest.mark.parametrize(("pattern", "text"), MATCHES)
def test_what_a_pattern_matches_may_be_written(pattern: str, text: str) -> None:
    assert _takes(pattern, text)


@pytest.mark.parametrize(("pattern", "text"), DIFFERS)
def test_what_a_pattern_does_not_match_is_not_written(pattern: str, text: str) -> None:
    assert not _takes(pattern, text)


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_cannot_be_had_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(PatternProblem, match=re.escape(REFUSED[pattern])):
        library_pattern(pattern)


_PARTS = """a b z - [ ] ( ) ^ $ | * + ? { } {2} {1,3} {2,} , \\d \\w \\W \\D \\. \\[ \\- \\n \\u0041 \\x42 . && -- ~~ é
[^ [a- (?: (?<n> / \\/ # 1 \\b \\1 (?= \\p{L} \\ud83d""".split()  # noqa: SIM905


def test_random_patterns_are_refused_or_match_what_is_written() -> None:
    """Python's engine is the judge where it takes the pattern; what it does not is only written."""
    tokenizer, rng, judged = ByteTokenizer(), random.Random(7), 0
    grammars = Grammars(tokenizer)  # type: ignore[arg-type]
    for _ in range(3000):
        pattern = "".join(rng.choices(_PARTS, k=rng.randint(1, 5)))
        try:
            grammar = f"start: %json {library_schema({'type': 'string', 'pattern': pattern})}"
        except SchemaProblem:
            continue
        text, complete = wander(grammars.constraint(grammar), tokenizer, rng, max_tokens=60)
        judge = _python(pattern)
        if judge is not None and complete:
            judged += 1
            assert judge.search(json_value(text)), (pattern, text)
    assert judged > 30


def _python(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern.replace("(?<n>", "(?P<n>"), re.ASCII)
    except (re.error, FutureWarning):
        return None
