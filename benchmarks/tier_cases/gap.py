"""How long running streams pause when a prompt of 6,000 tokens arrives; beside it the same streams without it."""

from __future__ import annotations

import asyncio

from tier_cases.bench import Bench
from tier_cases.client import Call, good
from tier_cases.figures import Figure, Statistic, Target
from tier_cases.timeline import gaps
from tier_cases.words import said

_PROMPT_TOKENS = 6000
_URGENT_TOKENS = 768
_DEFAULT_TOKENS = 1536  # enough to last until the prompt is through
_SETTLE_S = 0.5
_ROUNDS = 12

FIGURES = (
    Figure("ultrafast", "longest gap of an ultrafast stream", "ms", Target("<=", 0.025, Statistic.LARGEST)),
    Figure("ultrafast_without", "  without the prompt", "ms"),
    Figure("default", "longest gap of a default stream", "ms", Target("<=", 0.250, Statistic.LARGEST)),
    Figure("default_without", "  without the prompt", "ms"),
    Figure("all_ultrafast", "all gaps of the ultrafast stream meanwhile", "ms"),
    Figure("all_default", "all gaps of the default stream meanwhile", "ms"),
    Figure("first_token", "first token of the prompt", "s"),
    Figure("client", "share of a core that the client takes", "%"),
)


async def measure(bench: Bench) -> None:
    for number in bench.rounds(_ROUNDS):
        for with_prompt in (False, True) if number % 2 else (True, False):
            await _streams(bench, with_prompt=with_prompt)


async def _streams(bench: Bench, *, with_prompt: bool) -> None:
    """One stream of each tier; the prompt, if there is to be one, when both are well under way."""
    prompt = said(bench.words.nonsense(bench.rng, bench.tokens(_PROMPT_TOKENS)))
    bias = bench.words.never_ending
    async with bench.watching_itself():
        urgent = await _stream(bench, "ultrafast", bench.tokens(_URGENT_TOKENS))
        shared = await _stream(bench, "default", bench.tokens(_DEFAULT_TOKENS))
        await urgent.begun()
        await shared.begun()
        await asyncio.sleep(_SETTLE_S)
        arrival = (
            await bench.client.start(prompt, tier="default", max_tokens=2, logit_bias=bias) if with_prompt else None
        )
        await urgent.done()
        if arrival is not None:
            await arrival.done()
        shared.hang_up()
        await shared.done()
    _note(bench, urgent, shared, arrival)


async def _stream(bench: Bench, tier: str, max_tokens: int) -> Call:
    """Sampled: plain text, with few repeats."""
    fields = {"temperature": 1, "seed": bench.rng.randrange(2**31), "logit_bias": bench.words.never_ending}
    return await bench.client.start(bench.words.story(bench.rng), tier=tier, max_tokens=max_tokens, **fields)


def _note(bench: Bench, urgent: Call, shared: Call, arrival: Call | None) -> None:
    streams = {"ultrafast": good(urgent.read()), "default": shared.read()}
    if arrival is None:
        start = max(answer.chunks[0].at for answer in streams.values()) + _SETTLE_S
        end = streams["ultrafast"].chunks[-1].at
    else:
        answer = good(arrival.read())
        start, end = answer.sent, answer.chunks[0].at
        bench.found.add("first_token", answer.first_token_s)
    for tier, stream in streams.items():
        pauses = gaps(stream.chunks, (start, end), bench.standstills)
        if pauses:  # none of a stream that was through by then
            bench.found.add(tier if arrival else f"{tier}_without", max(pauses))
        if arrival:
            for gap in pauses:
                bench.found.add(f"all_{tier}", gap)
