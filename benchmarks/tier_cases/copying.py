"""Requests whose answers copy from the prompt, with the answer that a capable model gives; and one without repeats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tier_cases.words import Messages, Words, said

_OLD_NAME, _NEW_NAME = "reserved", "set_aside"
_LOG_LINES = 200
_QUOTED = 12
_ROWS = 24
_PARTS = ("disk", "fan", "mail", "queue", "backup", "login", "cache", "proxy")
_EVENTS = ("ready", "slow answer", "restarted by hand", "quota reached", "checked", "no route")


@dataclass(frozen=True)
class Task:
    """One request.

    Attributes:
        target: the answer of a capable model.
        prediction: what the client says the answer will be like, if it does.
        fields: of the request, further ones.
    """

    key: str
    messages: Messages
    target: str
    max_tokens: int
    prediction: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


def tasks(words: Words, rng: Random) -> list[Task]:
    """Each kind once, with new content where it has some."""
    return [
        _rewriting(predicted=True),
        _rewriting(predicted=False),
        _quoting(rng),
        _reformatting(rng),
        _never_repeating(words, rng),
    ]


def _rewriting(*, predicted: bool) -> Task:
    source = Path(__file__).with_name("sample_source.py").read_text(encoding="utf-8")
    ask = f"Rename `{_OLD_NAME}` to `{_NEW_NAME}` in this file. Answer with the whole new file and nothing else.\n\n"
    return Task(
        "rewrite" if predicted else "rewrite_context",
        said(f"{ask}```python\n{source}```"),
        target=f"```python\n{source.replace(_OLD_NAME, _NEW_NAME)}```",
        max_tokens=768,
        prediction=source if predicted else None,
    )


def _quoting(rng: Random) -> Task:
    lines = [
        f"{9 + number // 60:02}:{number % 60:02} {rng.choice(_PARTS)}{rng.randrange(9)}: {rng.choice(_EVENTS)}"
        for number in range(_LOG_LINES)
    ]
    quoted = sorted(rng.sample(range(_LOG_LINES), _QUOTED))
    for number in quoted:
        lines[number] += f", ERROR {rng.randrange(100, 1000)}"
    log = "\n".join(lines)
    return Task(
        "quote",
        said(f"Here is a log.\n\n{log}\n\nQuote every line with an ERROR, each after the words `The log says:`."),
        target="\n".join(f"The log says: {lines[number]}" for number in quoted),
        max_tokens=384,
    )


def _reformatting(rng: Random) -> Task:
    rows = [
        {
            "id": rng.randrange(10_000),
            "part": rng.choice(_PARTS),
            "event": rng.choice(_EVENTS),
            "count": rng.randrange(99),
        }
        for _ in range(_ROWS)
    ]
    compact = json.dumps(rows, separators=(",", ":"))
    return Task(
        "json",
        said(f"Write this JSON with an indentation of two spaces, and nothing else.\n\n{compact}"),
        target=json.dumps(rows, indent=2),
        max_tokens=768,
    )


def _never_repeating(words: Words, rng: Random) -> Task:
    """Sampled so hot that hardly anything comes twice."""
    fields = {"temperature": 1.8, "seed": rng.randrange(2**31), "logit_bias": words.never_ending}
    return Task("fresh", words.story(rng), target=words.nonsense(rng, 256), max_tokens=256, fields=fields)
