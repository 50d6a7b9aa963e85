"""The parts of a note, each with the moment at which it was ready: facts by the model, figures by code."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

from examples.endpoint import Endpoint
from examples.research.sources import Filing, Market, amount

METRICS = {  # what is extracted, and how it is asked
    "revenue": "What was the revenue of the quarter reported?",
    "revenue a year before": "What was the revenue of the same quarter a year before?",
    "operating income": "What was the operating income of the quarter reported?",
    "expected revenue of the full year": "What revenue is expected for the full year?",
}
_EXTRACT = (
    "You read a filing with numbered paragraphs. Answer with one figure of it, word for word, after the number of its "
    "paragraph, such as: [9] $12.3 million."
)
_COMMENT = "You write for traders. Say in one plain sentence what these figures mean. Use no numbers but those given."


@dataclass(frozen=True)
class Fact:
    """A figure, as the filing writes it, and the paragraph that has it."""

    figure: str
    paragraph: int


@dataclass
class Note:
    """What there is to say of one company.

    Attributes:
        facts: by metric: those whose figure is in the paragraph cited.
        figures: computed here, by name.
        comment: one sentence of the model's; empty: none came, or it had numbers of its own.
        rejected: what the model said that the filing does not have.
        ready: seconds after the start at which each part was ready.
    """

    filing: Filing
    facts: dict[str, Fact] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    comment: str = ""
    rejected: list[str] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)


NUM_PARTS = len(METRICS) + 4  # of a note: the facts, the market, growth, margin and the comment


class Writer:
    """Writes the notes of one run.

    Args:
        free: the model writes figures itself; otherwise the schema lists those of the filing, for small models.
        at_once: requests in flight.
    """

    def __init__(self, endpoint: Endpoint, *, free: bool, at_once: int) -> None:
        self._endpoint = endpoint
        self._free = free
        self._slots = asyncio.Semaphore(at_once)
        self._start = time.perf_counter()

    async def write(self, filing: Filing, market: Market) -> Note:
        """The note of one company; parts are ready one by one."""
        note = Note(filing)
        note.figures["move since the filing"] = f"{market.move:+.1%}"
        note.figures["average price since"] = f"{market.average:.2f}"
        note.figures["volume beside before"] = f"{market.volume_ratio:.1f}x"
        self._ready(note)
        await asyncio.gather(*(self._extract(note, metric) for metric in METRICS))
        await self._comment(note)
        return note

    def _ready(self, note: Note) -> None:
        note.ready.append(time.perf_counter() - self._start)

    async def _extract(self, note: Note, metric: str) -> None:
        filing = note.filing
        citation = {"maxLength": 40} if self._free else {"enum": filing.citations}
        schema = _object(citation={"type": "string", **citation})
        async with self._slots:
            answer = await self._endpoint.json(_EXTRACT, f"{filing.text}\n\n{METRICS[metric]}", schema, max_tokens=60)
        fact = check(answer, filing)
        if fact is None:
            note.rejected.append(f"{metric}: {answer}")
            return
        note.facts[metric] = fact
        self._ready(note)
        self._compute(note, metric)

    def _compute(self, note: Note, new: str) -> None:
        """What can be computed now that the metric is there."""
        amounts = {metric: amount(fact.figure) for metric, fact in note.facts.items()}
        revenue = amounts.get("revenue")
        for name, other in (("growth", "revenue a year before"), ("margin", "operating income")):
            if new in ("revenue", other) and revenue and amounts.get(other):
                value = revenue / amounts[other] - 1 if name == "growth" else amounts[other] / revenue
                note.figures[name] = f"{value:+.1%}" if name == "growth" else f"{value:.1%}"
                self._ready(note)

    async def _comment(self, note: Note) -> None:
        known = [f"{metric}: {note.facts[metric].figure}" for metric in METRICS if metric in note.facts]
        known += [f"{name}: {value}" for name, value in sorted(note.figures.items())]
        text = f"{note.filing.company}\n" + "\n".join(known)
        schema = _object(sentence={"type": "string", "maxLength": 200})
        async with self._slots:
            answer = await self._endpoint.json(_COMMENT, text, schema, max_tokens=120)
        sentence = _read(answer).get("sentence", "").strip()
        if not sentence or foreign_numbers(sentence, text):
            note.rejected.append(f"comment: {sentence or answer}")
            return
        note.comment = sentence
        self._ready(note)


def check(answer: str, filing: Filing) -> Fact | None:
    """The fact of an answer; None: its figure is no amount, or is not in the paragraph that it cites."""
    citation = str(_read(answer).get("citation", "")).strip()
    match = re.fullmatch(r"\[(\d+)\] (.*)", citation)
    if match is None or citation not in filing.citations:
        return None
    return Fact(match[2], int(match[1]))


def foreign_numbers(sentence: str, given: str) -> list[str]:
    """Numbers of a sentence that are not among those given."""
    known = set(_numbers(given))
    return [number for number in _numbers(sentence) if number not in known]


def _numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,]\d+)*", text)


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _read(answer: str) -> dict[str, Any]:
    try:
        said = json.loads(answer)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
