"""What a model answered: the answer and the confidence in its text, in the form asked for or as models write else."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reply:
    """What was found in a text.

    Attributes:
        answer: as written, but for marks around it; ``None``: there is none.
        confidence: from 0 to 1; ``None``: none is stated.
    """

    answer: str | None
    confidence: float | None


_MARKS = r"[*_`#> \t]*"  # of Markdown, around labels
_ANSWER = re.compile(
    rf"^{_MARKS}(?:(?:the|my)\s+)?(?:(?:final|exact|correct)\s+)?answer{_MARKS}(?:is\b{_MARKS}:?|[:=]|$){_MARKS}(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_IN_SENTENCE = re.compile(r"\b(?:final|correct|the) answer is\b(.*)$", re.IGNORECASE | re.MULTILINE)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_LABEL = re.compile(rf"^{_MARKS}(?:explanation|reasoning|confidence|note|question)\b", re.IGNORECASE)
_CONFIDENCE = re.compile(
    rf"\bconfidence(?:{_MARKS}(?:level|score)\b)?(?:{_MARKS}\([^()\n]*\))?{_MARKS}(?:is|:|=){_MARKS}(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_SHARE = re.compile(
    r"(?:about|around|approximately|~|≈)?\s*(\d{1,3}(?:[.,]\d{1,9})?)\s*(%|percent|per cent|/\s*100?\b)?", re.IGNORECASE
)
_LONGEST = 2000  # characters of a text that may be an answer as a whole
_BOXES = 20  # the last so many are looked at


def read(text: str) -> Reply:
    """The last answer that the text states, and the last confidence. Thinking that is shown in the text is left out."""
    text = re.sub(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", " ", text, flags=re.DOTALL | re.IGNORECASE)
    return Reply(_answer(text), _confidence(text))


def bare(text: str) -> str:
    """Text without marks, quotes, dollars and a full stop around it, and without LaTeX's wrappers of text."""
    text = unicodedata.normalize("NFKC", text).strip()
    before = None
    while text != before:
        before = text
        text = text.strip(" \t\r\n*_`\"'“”‘’«»").removesuffix(".").strip()
        text = re.sub(r"^\\[(\[](.*)\\[)\]]$", r"\1", text, flags=re.DOTALL)
        text = re.sub(r"^(\$\$?)([^$]+)\1$", r"\2", text)
        text = re.sub(r"^\\(?:text|mathrm|mathbf|textbf|boxed|fbox)\s*\{([^{}]*)\}$", r"\1", text)
        text = re.sub(r"^[<\[{]([^<>\[\]{},]*)[>\]}]$", r"\1", text)
    return text


def _answer(text: str) -> str | None:
    labelled = [_labelled(text, match) for match in _ANSWER.finditer(text)]
    stated = [answer for answer in labelled if answer]
    if stated:
        return stated[-1]
    if boxed := _boxed(text):
        return boxed
    said = [answer for match in _IN_SENTENCE.finditer(text) if (answer := _cut(match[1].lstrip(" :").split(". ")[0]))]
    if said:
        return said[-1]
    # No word of an answer: a text of one line is one.
    if len(text) > _LONGEST:
        return None
    lines = [line for line in text.splitlines() if bare(line) and not (_LABEL.match(line) or _ANSWER.match(line))]
    if len(lines) != 1:
        return None
    # "The capital of Japan is Tokyo": what the sentence says of its subject.
    sentence = re.fullmatch(r".*\s(?:is|are|was|were|equals|=)[\s:]+(\S.*)", bare(lines[0]), re.IGNORECASE)
    return _cut(sentence[1] if sentence else lines[0]) or None


def _labelled(text: str, match: re.Match[str]) -> str:
    """What stands behind the label, or in the line below it."""
    if bare(match[1]):
        return _cut(match[1])
    for line in text[match.end() :].splitlines():
        if bare(line):
            return "" if _LABEL.match(line) or _ANSWER.match(line) else _cut(line)
    return ""


def _cut(line: str) -> str:
    """The answer in its line: up to what models write behind it, out of its box."""
    line = re.split(r"\b(?:confidence|explanation)\b", line, maxsplit=1, flags=re.IGNORECASE)[0].rstrip("*_ \t,;(")
    return _boxed(line) or bare(line)


def _boxed(text: str) -> str:
    """What is in the last box, braces in it balanced."""
    for match in list(_BOX.finditer(text))[:-_BOXES:-1]:
        depth = 1
        for at in range(match.end(), min(len(text), match.end() + _LONGEST)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if depth == 0:
                return bare(text[match.end() : at])
    return ""


def _confidence(text: str) -> float | None:
    for match in reversed(list(_CONFIDENCE.finditer(text))):
        stated = bare(match[1])
        number = _SHARE.match(stated)
        if number is None:
            continue
        rest = stated[number.end() :].lstrip()
        if re.match(r"(?:-|–|—|to\b)\s*\d", rest):  # a range, such as the one that was asked for
            continue
        value, unit = float(number[1].replace(",", ".")), (number[2] or "").replace(" ", "")
        if unit == "/10":
            value *= 10
        elif not unit and value <= 1 and re.search(r"[.,]", number[1]):  # 0.85 for 85 %
            value *= 100
        if value <= 100:
            return value / 100
    return None
