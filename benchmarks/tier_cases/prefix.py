"""The first token after a prefix of 2,000 tokens: new, and seen before with another question at its end."""

from __future__ import annotations

from tier_cases.bench import Bench
from tier_cases.figures import Figure, Target
from tier_cases.words import said

_PREFIX_TOKENS = 2000
_ROUNDS = 15

FIGURES = (
    Figure("cold", "first token after 2,000 tokens, new", "ms"),
    Figure("repeated", "first token after the same 2,000 and a new question", "ms"),
    Figure("share", "  repeated, as a share of new", "%", Target("<=", 0.08)),
    Figure("cached", "tokens of it that were cached", "count"),
)


async def measure(bench: Bench) -> None:
    for number in bench.rounds(_ROUNDS):
        tier = ("default", "ultrafast")[number % 2]
        prefix = bench.words.nonsense(bench.rng, bench.tokens(_PREFIX_TOKENS))
        answers = [
            await bench.client.ask(
                said(f"{prefix}\n\n{question}"), tier=tier, max_tokens=2, logit_bias=bench.words.never_ending
            )
            for question in ("How many words are these?", "Which of these words is the longest?")
        ]
        cold, repeated = (answer.first_token_s for answer in answers)
        bench.found.add("cold", cold)
        bench.found.add("repeated", repeated)
        bench.found.add("share", repeated / cold)
        bench.found.add("cached", answers[1].cached_tokens)
