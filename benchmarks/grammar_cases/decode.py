"""Tokens per second with and without a schema: the same prompt, in turns, the embedded model."""

from __future__ import annotations

import statistics
from typing import Any

from grammar_cases.documents import DOCUMENTS
from ultrafast import Engine
from ultrafast.chat.schema import library_schema

_MAX_TOKENS = 192
_PROMPT = [{"role": "user", "content": "List tickets of a software project as JSON."}]


def measure(rounds: int, threads: int | None, max_tokens: int = _MAX_TOKENS) -> dict[str, Any]:
    """Print a table, and return its figures."""
    tickets = {"type": "array", "items": DOCUMENTS[0][1], "minItems": 20}  # more than the tokens suffice for
    grammar = f"start: json\njson: %json {library_schema(tickets)}"
    free: list[float] = []
    constrained: list[float] = []
    with Engine(threads=threads, cache_mib=0) as engine:
        for seed in range(-1, rounds):  # the first round warms up
            options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": 0.7, "seed": seed + 1}
            without = engine.generate(_PROMPT, ignore_eos=True, **options)
            within = engine.generate(_PROMPT, grammar=grammar, **options)
            if seed >= 0:
                free.append(without.tokens_per_s)
                constrained.append(within.tokens_per_s)
        used = engine.threads
    shares = [one / other for one, other in zip(constrained, free, strict=True)]
    print(f"{rounds} rounds of {max_tokens} tokens, {used} threads; tokens per second, median (lowest to highest)")
    for name, values in (("free", free), ("constrained", constrained)):
        print(f"{name:12} {statistics.median(values):7.1f} ({min(values):.1f} to {max(values):.1f})")
    print(f"{'share':12} {statistics.median(shares):7.2f} ({min(shares):.2f} to {max(shares):.2f})")
    return {"threads": used, "free": free, "constrained": constrained, "share": statistics.median(shares)}
