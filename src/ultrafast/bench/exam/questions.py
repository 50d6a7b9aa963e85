"""Questions, and what a row of a question set must be: rows as Humanity's Last Exam has them, or GDPval.

A set of one's own takes the fields of the former: ``id``, ``question``, ``answer``; optionally ``answer_type``
(``exactMatch``, which it is without, or ``multipleChoice``, whose options stand in the question and whose answer is a
letter), ``image``, ``raw_subject``, ``category``. Other fields are not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
import numpy as np

from ultrafast.errors import ConfigError

Kind = Literal["exactMatch", "multipleChoice", "open"]
"""How an answer is graded: as text or number; by its letter; ``open``: there is no one answer, a task (GDPval)."""

_OF_HLE = {"id", "question", "image", "answer", "answer_type", "raw_subject", "category"}
_OF_GDPVAL = {"task_id", "sector", "occupation", "prompt", "reference_files", "rubric_pretty"}
FIELDS = _OF_HLE | _OF_GDPVAL
"""What is read of a row: rows hold more, some of it large."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        answer: what is right; of an open task what it is judged by, ``""`` where the set has nothing.
        image: its URL, mostly a ``data:`` one; ``""``: none.
        files: names of files that belong to it, which are not sent.
    """

    id: str
    text: str
    answer: str
    kind: Kind = "exactMatch"
    subject: str = ""
    category: str = ""
    image: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions to ask.

    Attributes:
        name: what reports call it.
        source: where it comes from, with the revision; no path of this machine.
        note: what a reader must be told of it; ``""``: nothing.
        left_out: how many were dropped for their image.
    """

    name: str
    source: str
    questions: Sequence[Question]
    note: str = ""
    left_out: int = 0

    @property
    def digest(self) -> str:
        """A hash of all that bears on asking and grading, in order."""
        return hashlib.sha256(msgspec.json.encode([*self.questions])).hexdigest()[:16]

    def chosen(self, *, images: bool, limit: int | None, seed: int) -> QuestionSet:
        """What will be asked: in an order that the seed gives, the first so many.

        Args:
            images: keep questions with an image.

        Raises:
            ConfigError: nothing is left.
        """
        able = [question for question in self.questions if images or not question.image]
        if not able:
            raise ConfigError(f"every question of {self.name} has an image: send them with --images send")
        order = np.random.default_rng(seed).permutation(len(able))
        return replace(self, questions=[able[i] for i in order][:limit], left_out=len(self.questions) - len(able))


def questions_from(rows: Iterable[tuple[str, Any]]) -> list[Question]:
    """Questions of rows, each with the place that an error names (``questions.jsonl, line 3``).

    Raises:
        ConfigError: a row is no question, two have one id, or there is none.
    """
    questions: list[Question] = []
    places: dict[str, str] = {}
    for place, row in rows:
        question = _question(row, place)
        if question.id in places:
            raise ConfigError(f"{place}: the id {question.id!r:.100} is taken: {places[question.id]}")
        places[question.id] = place
        questions.append(question)
    if not questions:
        raise ConfigError("there is no question in the set")
    return questions


def _question(row: Any, place: str) -> Question:
    if not isinstance(row, Mapping):
        raise ConfigError(f'{place}: a question is an object, such as {{"id": …, "question": …, "answer": …}}')
    if "task_id" in row and "prompt" in row:
        return Question(
            id=_text(row, "task_id", place),
            text=_text(row, "prompt", place),
            answer=_text(row, "rubric_pretty", place, needed=False),
            kind="open",
            subject=_text(row, "occupation", place, needed=False),
            category=_text(row, "sector", place, needed=False),
            files=_names(row, "reference_files", place),
        )
    kind = _text(row, "answer_type", place, needed=False) or "exactMatch"
    if kind not in ("exactMatch", "multipleChoice"):
        raise ConfigError(f"{place}: answer_type is exactMatch or multipleChoice, not {kind!r:.100}")
    return Question(
        id=_text(row, "id", place),
        text=_text(row, "question", place),
        answer=_text(row, "answer", place),
        kind=kind,  # type: ignore[arg-type]
        subject=_text(row, "raw_subject", place, needed=False),
        category=_text(row, "category", place, needed=False),
        image=_image(row, place),
    )


def _text(row: Mapping[str, Any], field: str, place: str, *, needed: bool = True) -> str:
    """A field as text; numbers, which people write for ids and answers, are taken as they are written."""
    value = row.get(field)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if value is None or value == "":
        if needed:
            raise ConfigError(f"{place}: {field} is missing")
        return ""
    if not isinstance(value, str):
        raise ConfigError(f"{place}: {field} must be text")
    if needed and not value.strip():
        raise ConfigError(f"{place}: {field} is blank")
    return value


def _image(row: Mapping[str, Any], place: str) -> str:
    image = _text(row, "image", place, needed=False)
    if image and not image.startswith(("data:image/", "https://", "http://")):
        raise ConfigError(f"{place}: image must be a URL, such as data:image/png;base64,…")
    return image


def _names(row: Mapping[str, Any], field: str, place: str) -> tuple[str, ...]:
    value = row.get(field)
    if value is None or value == "":
        return ()
    if isinstance(value, str):  # as CSV has lists
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            value = [value]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{place}: {field} must be a list of names")
    return tuple(value)
