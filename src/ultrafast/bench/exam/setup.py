"""What an exam is: the questions, the arms, and everything else that bears on the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ultrafast.bench.client.call import Ask
from ultrafast.bench.client.endpoint import Endpoint
from ultrafast.bench.exam.prompts import FORM_ID, prompt_for
from ultrafast.bench.exam.questions import Question, QuestionSet


@dataclass(frozen=True, slots=True)
class Setup:
    """One exam.

    Attributes:
        questions: in the order in which they are asked.
        endpoints: the arms: one model, asked by several tiers.
        concurrency: requests in flight, over all arms.
        max_tokens: of an answer, its reasoning included; the same in all arms.
        timeout_s: seconds after which a call counts as never answered: long, since the limit is one of tokens.
        seed: of the order of questions and arms, and sent for sampling.
        images: whether questions with images are asked, with them.
    """

    questions: QuestionSet
    endpoints: Sequence[Endpoint]
    concurrency: int = 1
    max_tokens: int = 2048
    reasoning_effort: str | None = None
    temperature: float | None = None
    timeout_s: float = 3600.0
    seed: int = 0
    images: bool = False

    def facts(self) -> dict[str, Any]:
        """As records have it: two runs are one exam when these are equal."""
        first = self.endpoints[0]
        return {
            "set": self.questions.name,
            "source": self.questions.source,
            "questions": len(self.questions.questions),
            "digest": self.questions.digest,
            "form": FORM_ID,
            "url": first.base_url,
            "model": first.model,
            "api": first.api,
            "tiers": [endpoint.tier for endpoint in self.endpoints],
            "concurrency": self.concurrency,
            "max_tokens": self.max_tokens,
            "reasoning_effort": self.reasoning_effort,
            "temperature": self.temperature,
            "timeout_s": self.timeout_s,
            "seed": self.seed,
            "images": self.images,
        }

    def ask(self, question: Question) -> Ask:
        """What is sent for a question, in every arm."""
        return Ask(
            prompt_for(question),
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            seed=self.seed,
            reasoning_effort=self.reasoning_effort,
        )

    def order(self) -> list[tuple[Question, list[Endpoint]]]:
        """Each question with the arms in the order in which they get it, drawn anew for every question."""
        random = np.random.default_rng(self.seed)
        arms = [random.permutation(len(self.endpoints)) for _ in self.questions.questions]
        return [
            (question, [self.endpoints[i] for i in order])
            for question, order in zip(self.questions.questions, arms, strict=True)
        ]


def arm_of(endpoint: Endpoint) -> str:
    """The name of an arm: its tier."""
    return endpoint.tier or "no tier asked"
