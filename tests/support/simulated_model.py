"""Endpoints that are made up, for `verify`: they answer as the HTTP client does, in microseconds and with known truth.

A "model" is a walk over next-token distributions of the embedded model at 320 places of a text (tests/golden/
requantised.npz): the place that comes next depends on the prompt, the place and the token. What makes it another model:
weights requantised to fewer bits, in the same proportion or a fraction of it, another temperature, fewer right answers,
more broken tool calls. What does not: noise on the logits, fresh for each call or each arm's own, which turns ties.
"""

from __future__ import annotations

import asyncio
import math
import random
import zlib
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ultrafast.bench.client.call import Ask, Call, Chunk, Outcome, TokenChance, ToolCall

DATA = Path(__file__).parent.parent / "golden/requantised.npz"

_VOCABULARY = 49_152
_NEAR = 6  # of the likeliest tokens, among which noise may change the order
_END = 40  # one token in so many ends the answer
_SCRIPTS = ("abcdefghijklmnopqrstuvwxyz", "абвгдежзиклмнопрст", "一二三四五六七八九十山川日月")


@cache
def logits(kind: str) -> npt.NDArray[np.float64]:
    """[places, tokens]; ``original``, ``q5_0`` or ``q4_0``."""
    with np.load(DATA) as data:
        return np.asarray(data[kind], dtype=float)


@cache
def _ids() -> list[list[int]]:
    with np.load(DATA) as data:
        ids: list[list[int]] = data["tokens"].tolist()
        return ids


@cache
def vocabulary(script: str) -> list[str]:
    """A made-up word for each token id."""
    rng = random.Random(script)
    return [" " * (rng.random() < 0.6) + "".join(rng.choices(script, k=rng.randint(1, 6))) for _ in range(_VOCABULARY)]


@dataclass(slots=True)
class Line:
    """How fast a tier writes, in tokens a second: idle, and with streams of others in flight."""

    idle: float = 60.0
    loaded: float = 60.0
    start_s: float = 0.1
    spread: float = 0.15  # standard deviation of the logarithm, from call to call


@dataclass
class SimulatedModel:
    """One arm.

    Attributes:
        weights: see `logits`; `share` of the way there from the original.
        sharpness: multiplies all logits: 2 and 3 are as sure as large models are.
        temperature: multiplies the one asked for.
        noise: standard deviation of noise on logits, fresh for each call.
        own_noise: the same, of this arm's own, always alike: other kernels.
        script: of the words it writes.
        chances: whether it gives log-probabilities.
        answers: what is right, by question; `ability` is the share it knows, `lapses` what it fails beyond.
        broken_calls, forgotten_calls: share of tool calls with bad arguments, and of those not made.
        tier, echo: what is asked, and what it says; `line` is how fast it is; `slow_share` of the calls go by `slow`.
        others: whose calls in flight load this one; shared by both arms of an engine.
    """

    seed: int = 0
    weights: str = "original"
    share: float = 1.0
    sharpness: float = 2.0
    temperature: float = 1.0
    noise: float = 0.01
    own_noise: float = 0.0
    script: str = _SCRIPTS[0]
    chances: bool = True
    answers: Mapping[str, str] = field(default_factory=dict)
    ability: float = 0.7
    lapses: float = 0.0
    broken_calls: float = 0.02
    forgotten_calls: float = 0.0
    longer: float = 1.0
    tier: str | None = None
    echo: str | None = None
    line: Line = field(default_factory=Line)
    slow: Line = field(default_factory=Line)
    slow_share: float = 0.0
    chunk_tokens: int = 8
    others: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self._rng = random.Random(f"calls {self.seed}")
        original = logits("original")
        mixed = (original + self.share * (logits(self.weights) - original)) * self.sharpness
        if self.own_noise:
            mixed = mixed + self.own_noise * np.random.default_rng(self.seed).standard_normal(mixed.shape)
        self._logits = mixed
        order = np.argsort(-mixed, axis=1)[:, :_NEAR]
        self._near = [(row.tolist(), mixed[i][row].tolist()) for i, row in enumerate(order)]
        shifted = mixed - mixed.max(axis=1, keepdims=True)
        self._log_sum = (np.log(np.exp(shifted).sum(axis=1)) + mixed.max(axis=1)).tolist()
        self._cumulative: dict[float, list[list[float]]] = {}
        self._words = vocabulary(self.script)
        self._now = 0.0

    async def call(self, ask: Ask, *, id: str, intended_s: float | None = None) -> Call:
        start = self._now if intended_s is None else intended_s
        call = Call(id, ask.tags, self.tier, start, sent_s=start, status=200, tier_served=self.echo)
        call.model_served = "simulated"
        self.others[0] += 1
        is_loaded = False
        # Long calls are in flight for long, which matters where there are tiers.
        turns = 2 + self._rng.randrange(1 + (ask.max_tokens or 0) // 16) if self.tier else 1
        for _ in range(turns):
            await asyncio.sleep(0)
            is_loaded |= self.others[0] > 1
        text = ask.prompt if isinstance(ask.prompt, str) else str(ask.prompt)
        if text in self.answers:
            self._answer(call, text)
        elif ask.tools:
            self._use_tools(call, text)
        else:
            self._write(call, ask, text)
        self._take_time(call, is_loaded=is_loaded)
        self.others[0] -= 1
        call.outcome = Outcome.OK
        return call

    def _write(self, call: Call, ask: Ask, prompt: str) -> None:
        limit = ask.max_tokens or 256
        place = zlib.crc32(prompt.encode()) % len(self._near)
        ids, tokens, chances = _ids(), list[int](), []
        for number in range(limit):
            if ask.temperature:
                chosen = self._drawn(place, ask.temperature * self.temperature)
            else:
                chosen, seen = self._likeliest(place)
                if ask.top_logprobs and self.chances:
                    chances.append((place, chosen, seen))
            token = ids[place][chosen]
            tokens.append(token)
            place = (place * 31 + token * 17 + 7 * number + 1) % len(self._near)
            if (token + place) % _END == 0 and self._rng.random() < 1 / self.longer:
                break
        call.text = "".join(self._words[token] for token in tokens)
        call.output_tokens = len(tokens)
        call.finish_reason = "length" if len(tokens) == limit else "stop"
        for stop in ask.extra.get("stop", ()):
            call.text = call.text.split(stop)[0]
        call.logprobs = [self._chance(*entry, tokens[i]) for i, entry in enumerate(chances)]

    def _drawn(self, place: int, temperature: float) -> int:
        if temperature not in self._cumulative:
            scaled = self._logits / temperature
            weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
            self._cumulative[temperature] = [list(accumulate(row)) for row in weights.tolist()]
        row = self._cumulative[temperature][place]
        return min(bisect(row, self._rng.random() * row[-1]), len(row) - 1)

    def _likeliest(self, place: int) -> tuple[int, list[float]]:
        tokens, values = self._near[place]
        seen = [value + self._rng.gauss(0, self.noise) for value in values] if self.noise else values
        return tokens[max(range(_NEAR), key=seen.__getitem__)], seen

    def _chance(self, place: int, chosen: int, seen: list[float], token: int) -> TokenChance:
        tokens, quiet = self._near[place]
        change = sum(math.exp(value) - math.exp(was) for value, was in zip(seen, quiet, strict=True))
        log_sum = math.log(math.exp(self._log_sum[place]) + change)
        top = {f"{place}-{t}": value - log_sum for t, value in zip(tokens, seen, strict=True)}
        return TokenChance(f"{place}-{chosen}", top[f"{place}-{chosen}"], top)

    def _answer(self, call: Call, question: str) -> None:
        knows = random.Random(question).random() < self.ability
        fails = random.Random(f"{question} {self.seed} lapse").random() < self.lapses
        slips = self._rng.random() < self.noise / 5
        call.text = self.answers[question] if knows and not fails and not slips else "I do not know: 0"
        call.output_tokens, call.finish_reason = 3, "stop"

    def _use_tools(self, call: Call, request: str) -> None:
        rng = random.Random(request)
        own = random.Random(f"{request} {self.seed}")
        needs = rng.random() < 0.66
        if needs and own.random() >= self.forgotten_calls and self._rng.random() >= self.noise / 5:
            is_broken = rng.random() < 0.02 or own.random() < self.broken_calls - 0.02
            arguments = '{"minutes": 5' if is_broken else '{"minutes": 5, "label": "tea"}'
            call.tool_calls = [ToolCall("1", "set_timer", arguments)]
            call.output_tokens, call.finish_reason = 20, "tool_calls"
        else:
            call.text, call.finish_reason = "Certainly.", "stop"
            call.output_tokens = round(self.longer * rng.randint(10, 60))

    def _take_time(self, call: Call, *, is_loaded: bool) -> None:
        line = self.slow if self._rng.random() < self.slow_share else self.line
        rate = line.loaded if is_loaded else line.idle
        rate *= self._rng.lognormvariate(0, line.spread)
        slowdown = line.idle / line.loaded if is_loaded else 1.0
        call.first_token_s = call.intended_s + line.start_s * slowdown * self._rng.lognormvariate(0, 2 * line.spread)
        total = call.output_tokens or 1
        sizes = [self.chunk_tokens] * (total // self.chunk_tokens)
        if total % self.chunk_tokens:
            sizes.append(total % self.chunk_tokens)
        ends = accumulate(sizes)
        first = sizes[0]
        call.chunks = [
            Chunk(call.first_token_s + (end - first) / rate, size) for end, size in zip(ends, sizes, strict=True)
        ]
        call.token_source = "chunks"
        call.done_s = call.last_token_s = call.chunks[-1].at_s
        self._now = call.done_s


def arms_of(**differences: Any) -> tuple[SimulatedModel, SimulatedModel]:
    """Two arms of one engine; ``first_…`` and ``second_…`` set an attribute of one, other names of both."""
    others = [0]
    sides = []
    for number, side in enumerate(("first_", "second_")):
        own = {name.removeprefix(side): value for name, value in differences.items() if name.startswith(side)}
        both = {n: v for n, v in differences.items() if not n.startswith(("first_", "second_")) and n != "seed"}
        seed = 2 * differences.get("seed", 0) + number
        sides.append(SimulatedModel(**{"seed": seed, "others": others, **both, **own}))
    return sides[0], sides[1]
