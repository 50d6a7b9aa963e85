"""An `ultrafast` request beside sixteen `default` streams that keep all cores busy.

Each round measures the sixteen twice, with the same prompts: alone, and with an `ultrafast` request in their midst.
Alone and beside are compared over the same text, because streams slow down as their contexts grow.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from tier_cases.bench import Bench, fresh_salt
from tier_cases.client import Answer, Call, good
from tier_cases.figures import Figure, Statistic, Target
from tier_cases.timeline import Progress, pace
from tier_cases.words import Messages, said

_STREAMS = 16
_STREAM_TOKENS = 256
_URGENT_TOKENS = 256
_SETTLE_S = 0.5  # from the last stream's first token
_TRIES = 50
_ROUNDS = 7

FIGURES = (
    Figure("solo", "ultrafast alone", "tokens/s"),
    Figure("beside", "ultrafast beside 16 default streams", "tokens/s"),
    Figure("of_solo", "  as a share of alone", "", Target(">=", 0.85)),
    Figure("of_default", "  as a multiple of one default stream meanwhile", "", Target(">=", 8)),
    Figure("default_alone", "16 default streams, together, alone", "tokens/s"),
    Figure("default_kept", "  share that they keep meanwhile", "", Target(">=", 0.08)),
    Figure("default_after", "  share that they have again after it", "", Target(">=", 0.95)),
    Figure(
        "first_token", "first token of a short ultrafast prompt, beside 16", "ms", Target("<=", 0.030, Statistic.P95)
    ),
    Figure("first_token_alone", "first token of a short ultrafast prompt, alone", "ms"),
    Figure("changed", "streams whose text depends on the load", "count", Target("<=", 0, Statistic.SUM)),
    Figure("client", "share of a core that the client takes", "%"),
)


@dataclass(frozen=True)
class Crowd:
    """The answers of the sixteen, and of the request in their midst."""

    streams: list[Answer]
    urgent: Answer | None

    @property
    def progress(self) -> Progress:
        return Progress(answer.chunks for answer in self.streams)

    @property
    def first_end(self) -> float:
        """When the first of the streams was through: from there on the load is less."""
        return min(answer.chunks[-1].at for answer in self.streams)

    @property
    def last_begin(self) -> float:
        return max(answer.chunks[0].at for answer in self.streams)

    def tokens_per_s(self, start: float, end: float) -> float:
        """Of all streams together."""
        per_character = sum(a.tokens for a in self.streams) / sum(len(a.text) for a in self.streams)
        progress = self.progress
        return (progress.at(end) - progress.at(start)) * per_character / (end - start)


async def measure(bench: Bench) -> None:
    for number in bench.rounds(_ROUNDS):
        prompts = [bench.words.story(bench.rng) for _ in range(_STREAMS)]
        urgent = bench.words.story(bench.rng), bench.rng.randrange(2**31)
        crowds: dict[bool, Crowd] = {}
        start = time.perf_counter()
        async with bench.watching_itself():
            solo = [await _urgent(bench, *urgent)]
            await solo[0].done()
            for with_urgent in (False, True) if number % 2 else (True, False):
                crowds[with_urgent] = await _crowd(bench, prompts, urgent if with_urgent else None)
            solo.append(await _urgent(bench, *urgent))
            await solo[1].done()
        if bench.undisturbed(start, time.perf_counter()):
            _compare(bench, [good(call.read()) for call in solo], crowds[False], crowds[True])
    async with bench.watching_itself():
        await _first_tokens(bench)


async def _urgent(bench: Bench, story: Messages, seed: int) -> Call:
    """Sampled, so that its text does not run in circles, where drafts would come for free."""
    return await bench.client.start(
        story,
        tier="ultrafast",
        max_tokens=bench.tokens(_URGENT_TOKENS),
        temperature=1,
        seed=seed,
        logit_bias=bench.words.never_ending,
        cache_salt=fresh_salt(),
    )


async def _load(bench: Bench, prompts: list[Messages]) -> list[Call]:
    """Sixteen streams, all of which have begun."""
    bias = bench.words.never_ending
    start, tokens = bench.client.start, bench.tokens(_STREAM_TOKENS)
    calls = [await start(prompt, tier="default", max_tokens=tokens, logit_bias=bias) for prompt in prompts]
    for call in calls:
        await call.begun()
    return calls


async def _crowd(bench: Bench, prompts: list[Messages], urgent: tuple[Messages, int] | None) -> Crowd:
    calls = await _load(bench, prompts)
    await asyncio.sleep(_SETTLE_S)
    call = await _urgent(bench, *urgent) if urgent else None
    for stream in calls:
        await stream.done()
    answers = [good(stream.read()) for stream in calls]
    return Crowd(answers, good(await call.answer()) if call else None)


def _compare(bench: Bench, solo: list[Answer], alone: Crowd, beside: Crowd) -> None:
    add, urgent = bench.found.add, beside.urgent
    assert urgent is not None
    start, end = urgent.chunks[0].at, urgent.chunks[-1].at
    solo_speed = sum(answer.tokens_per_s for answer in solo) / len(solo)
    one_default = beside.tokens_per_s(start, end) / _STREAMS
    add("solo", solo_speed)
    add("beside", urgent.tokens_per_s)
    add("of_solo", urgent.tokens_per_s / solo_speed)
    add("of_default", urgent.tokens_per_s / one_default if one_default else float("inf"))
    add("default_alone", alone.tokens_per_s(alone.last_begin, alone.first_end))
    add("default_kept", pace(alone.progress, beside.progress, start, end))
    if beside.first_end > end:
        add("default_after", pace(alone.progress, beside.progress, end, beside.first_end))
    pairs = zip([solo[0], *alone.streams], [urgent, *beside.streams], strict=True)
    add("changed", sum(a.text != b.text for a, b in pairs))


async def _first_tokens(bench: Bench) -> None:
    """Short prompts at random moments; each beside a load, which is renewed as it ends, has its neighbour alone."""
    tries = 5 if bench.quick else _TRIES
    done = 0
    while done < tries:
        bench.say(f"first tokens, {done} of {tries}")
        alone = [await _first_token(bench) for _ in range(10)]
        calls = await _load(bench, [bench.words.story(bench.rng) for _ in range(_STREAMS)])
        while done < tries:
            await asyncio.sleep(bench.rng.uniform(0.05, 0.25))
            start = time.perf_counter()
            seconds = await _first_token(bench)
            if any(call.ended for call in calls) or not bench.undisturbed(start, time.perf_counter()):
                break
            bench.found.add("first_token", seconds)
            if alone:
                bench.found.add("first_token_alone", alone.pop())
            done += 1
        for call in calls:
            call.hang_up()
            await call.done()


async def _first_token(bench: Bench) -> float:
    question = said(f"What is {bench.rng.randrange(1000)} plus {bench.rng.randrange(1000)}?")
    bias = bench.words.never_ending
    return (await bench.client.ask(question, tier="ultrafast", max_tokens=4, logit_bias=bias)).first_token_s
