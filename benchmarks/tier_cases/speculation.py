"""The same requests with speculation and without it, alone on the machine: tier `ultrafast` beside tier `default`."""

from __future__ import annotations

from tier_cases.bench import Bench, fresh_salt
from tier_cases.copying import Task, tasks
from tier_cases.drafting import FIGURES, ROUNDS, Said, compare

__all__ = ["FIGURES", "measure"]


async def measure(bench: Bench) -> None:
    for tier in ("default", "ultrafast"):  # the first requests find caches cold and costs unknown
        await _ask(bench, tasks(bench.words, bench.rng)[-1], tier)
    for number in bench.rounds(ROUNDS):
        for task in tasks(bench.words, bench.rng):
            order = ("default", "ultrafast") if number % 2 else ("ultrafast", "default")
            said = {tier: await _ask(bench, task, tier) for tier in order}
            compare(bench.found, task.key, plain=said["default"], drafted=said["ultrafast"])


async def _ask(bench: Bench, task: Task, tier: str) -> Said:
    """With a salt of its own, or the drafts would be the answer to the same request a moment before."""
    fields = {**task.fields, "cache_salt": fresh_salt()}
    if task.prediction is not None:
        fields["prediction"] = {"type": "content", "content": task.prediction}
    answer = await bench.client.ask(task.messages, tier=tier, max_tokens=bench.tokens(task.max_tokens), **fields)
    return Said(
        answer.text,
        answer.tokens,
        answer.tokens_per_s,
        answer.draft_tokens("accepted"),
        answer.draft_tokens("rejected"),
    )
