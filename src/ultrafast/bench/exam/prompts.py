"""What a model is asked: the question, and a fixed form to answer in. A change of these words is another exam."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ultrafast.bench.exam.questions import Question

_TEXT = "the exact answer, as short as it can be"
_LETTER = "the letter of the right choice"
_FORM = """{question}

Reply in exactly this form:
Explanation: why, in a few sentences
Answer: {what}
Confidence: how sure you are that the answer is right, from 0% to 100%"""

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
