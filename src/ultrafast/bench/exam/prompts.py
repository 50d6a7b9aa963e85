"""What a model is asked: the question, and a fixed form to answer in. A change of these words is another exam."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ultrafast.bench.exam.questions import Question

_TEXT = "the exact answer, as short as possible"
_LETTER = "one letter"
# The question comes last: small models keep to it better, and what all prompts begin with is computed once.
_FORM = """Answer the question in three lines: a line "Explanation:" with a short reason, \
a line "Answer:" with {what}, and a line "Confidence:" with how sure you are, from 0% to 100%.

Question: {question}"""

FORM_ID = hashlib.sha256("\n".join((_FORM, _TEXT, _LETTER)).encode()).hexdigest()[:8]
"""Changes with the words, so that answers to others are never taken for answers to these."""


def prompt_for(question: Question) -> str | Sequence[Mapping[str, Any]]:
    """The prompt as text; as one message with parts where there is an image. A task is asked in its own words."""
    if question.kind == "open":
        return question.text
    text = _FORM.format(question=question.text, what=_LETTER if question.kind == "multipleChoice" else _TEXT)
    if not question.image:
        return text
    parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": question.image}}]
    return [{"role": "user", "content": parts}]
