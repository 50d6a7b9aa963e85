"""The same requests with speculation and without it, alone on the machine: tier `ultrafast` beside tier `default`."""

from __future__ import annotations

from tier_cases.bench import Bench, fresh_salt
from tier_cases.client import Answer
from tier_cases.copying import Task, tasks
from tier_cases.figures import Figure, Statistic, Target

_ROUNDS = 7
_FEWEST_TOKENS = 32  # of an answer whose speed means something
_KINDS = (
    ("rewrite", "rewriting a file, given as prediction too", Target(">=", 2.0)),
    ("quote", "quoting a log", Target(">=", 2.0)),
    ("json", "reformatting JSON", Target(">=", 2.0)),
    ("fresh", "text that never repeats", Target(">=", 0.98)),
)


def _figures(key: str, title: str, target: Target) -> tuple[Figure, ...]:
    return (
        Figure(f"{key}_plain", f"{title}: plain", "tokens/s"),
        Figure(f"{key}_drafted", "  with speculation", "tokens/s"),
        Figure(f"{key}_ratio", "  times plain", "", target),
        Figure(f"{key}_accepted", "  draft tokens accepted, of 100 of the output", "%"),
        Figure(f"{key}_rejected", "  draft tokens rejected, to 100 of the output", "%"),
    )


FIGURES = (
    *(figure for kind in _KINDS for figure in _figures(*kind)),
    Figure("changed", "answers that depend on speculation", "count", Target("<=", 0, Statistic.SUM)),
    Figure("short", f"answers of fewer than {_FEWEST_TOKENS} tokens, left out", "count"),
)


async def measure(bench: Bench) -> None:
    for number in bench.rounds(_ROUNDS):
        for task in tasks(bench.words, bench.rng):
            order = ("default", "ultrafast") if number % 2 else ("ultrafast", "default")
            answers = {tier: await _ask(bench, task, tier) for tier in order}
            _compare(bench, task.key, answers["default"], answers["ultrafast"])


async def _ask(bench: Bench, task: Task, tier: str) -> Answer:
    """With a salt of its own, or the drafts would be the answer to the same request a moment before."""
    fields = {**task.fields, "cache_salt": fresh_salt()}
    if task.prediction is not None:
        fields["prediction"] = {"type": "content", "content": task.prediction}
    return await bench.client.ask(task.messages, tier=tier, max_tokens=bench.tokens(task.max_tokens), **fields)


def _compare(bench: Bench, key: str, plain: Answer, drafted: Answer) -> None:
    add = bench.found.add
    add("changed", plain.text != drafted.text or plain.tokens != drafted.tokens)
    add("short", plain.tokens < _FEWEST_TOKENS)
    if plain.tokens < _FEWEST_TOKENS:
        return
    add(f"{key}_plain", plain.tokens_per_s)
    add(f"{key}_drafted", drafted.tokens_per_s)
    add(f"{key}_ratio", drafted.tokens_per_s / plain.tokens_per_s)
    add(f"{key}_accepted", drafted.draft_tokens("accepted") / drafted.tokens)
    add(f"{key}_rejected", drafted.draft_tokens("rejected") / drafted.tokens)
