"""Grading here, without a judge: multiple choice by the letter, exact match by number or normalised text."""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass
from typing import Literal

from ultrafast.bench.exam.answers import bare, read
from ultrafast.bench.exam.numbers import is_same, number_in
from ultrafast.bench.exam.questions import Question

_LONE = re.compile(r"[(\[]?([A-Za-z])[)\].:]*")
_LETTER_FIRST = re.compile(r"[(\[]?([A-Z])(?:((?:[)\].:,]|\s+[-–—](?=\s)|\s*(?=\())+)\s*|\s+)(.*)$", re.DOTALL)
_OTHER_LETTER = re.compile(
    r"(?:^[(\[]?[A-Z](?:[)\].:,;]|$))|(?:\b(?:or|and|not)\b|[,;/&])\s*[(\[]?[A-Z](?:[)\].:,;]|\s|$)"
)


@dataclass(frozen=True, slots=True)
class Grade:
    """What an answer is worth.

    Attributes:
        correct: ``None``: not graded.
        answer: what was taken for the answer, as a letter in multiple choice; ``None``: nothing was found.
        confidence: as the model states it, from 0 to 1.
        by: who graded: this program, the judge; ``missing``: the judge was to, and did not, which counts as wrong.
    """

    correct: bool | None
    answer: str | None
    confidence: float | None
    by: Literal["match", "judge", "missing", "nobody"] = "match"


def grade(question: Question, text: str) -> Grade:
    """The grade of what a model wrote. No answer in it is a wrong answer; open tasks are not graded here."""
    if question.kind == "open":
        return Grade(None, None, None, "nobody")
    reply = read(text)
    letter = _letter(question.answer) if question.kind == "multipleChoice" else None
    if letter is None:
        correct = reply.answer is not None and is_match(reply.answer, question.answer)
        return Grade(correct, reply.answer, reply.confidence)
    chosen = choice(reply.answer or "", question.text)
    return Grade(chosen == letter, chosen, reply.confidence)


def is_match(answer: str, reference: str) -> bool:
    """Whether both are one answer: as numbers, or as text without case, outer marks, articles and spacing."""
    wanted = number_in(bare(reference))
    if wanted is not None and (given := number_in(bare(answer))) is not None:
        return is_same(given, wanted)
    return _normal(answer) == _normal(reference) != ""


def choice(answer: str, question: str) -> str | None:
    """The letter that an answer chooses, by itself or by the text of its option; ``None``: none, or more than one."""
    answer = re.sub(r"^(?:option|choice|letter|answer)\s*:?\s*", "", bare(answer), flags=re.IGNORECASE)
    options = options_in(question)
    if match := _LONE.fullmatch(answer):
        return _among(match[1].upper(), options)
    by_text = [letter for letter, option in options.items() if _normal(option) == _normal(answer) != ""]
    if len(by_text) == 1:
        return by_text[0]
    match = _LETTER_FIRST.match(answer)
    if match is None:
        return None
    letter, mark, rest = match.groups()
    if _normal(rest.strip("()")) == _normal(options.get(letter, "")) != "":
        return letter
    # Without a mark behind it, it may be the article in "A dog barks".
    return _among(letter, options) if mark and not _OTHER_LETTER.search(rest) else None


def options_in(question: str) -> dict[str, str]:
    """The options that a question lists, one a line: ``A. …``, ``B) …``, ``(C) …``; empty if not from A on."""
    found = re.findall(r"^[ \t]*[(\[]?([A-Z])[)\].:][ \t]+(\S.*)$", question, re.MULTILINE)
    letters = "".join(letter for letter, _ in found)
    return dict(found) if len(found) > 1 and string.ascii_uppercase.startswith(letters) else {}


def _letter(answer: str) -> str | None:
    """The letter that is right; ``None``: the set's answer is no letter, and is compared as text."""
    match = _LONE.fullmatch(bare(answer))
    return match[1].upper() if match else None


def _among(letter: str, options: dict[str, str]) -> str | None:
    return letter if not options or letter in options else None


def _normal(text: str) -> str:
    """Case, spacing, articles and marks around do not count; letters, digits and signs in between do."""
    text = unicodedata.normalize("NFKC", bare(text)).casefold()
    text = re.sub(r"\\(?:text|mathrm|mathbf|left|right)\b|\\[,;! ]", "", text)
    text = re.sub(r"^(?:(?:a|an|the)\s+)+|[-‐‑]", " ", text) if re.search(r"[^\W\d_]{3}", text) else text
    return re.sub(r"\s+|\{(\w)\}", r"\1", text).strip(".,;:!?")
