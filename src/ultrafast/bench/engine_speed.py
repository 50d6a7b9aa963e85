"""How fast the engine is alone, beside what the machine's memory allows.

Decoding one token reads every weight once, so memory sets the pace: ``bound_tokens_per_s`` = bandwidth of a plain
sequential read / weight bytes. It is a yardstick rather than a wall: decode can pass it where a cache keeps a part of
the weights. Both are measured in the same run and in turns, because the bandwidth of a shared machine changes from
minute to minute.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ultrafast.engine import native, topology

if TYPE_CHECKING:
    from ultrafast.engine.engine import Engine

PROMPT_LENGTHS = (64, 512)  # tokens
DECODE_TOKENS = 128
DECODE_PROMPT = 16  # tokens; short, so that decoding is weights rather than attention


@dataclass(frozen=True)
class Samples:
    """What the rounds gave for one quantity."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        return f"{self.median:10,.0f} tokens/s   ({min(self.values):,.0f} to {max(self.values):,.0f})"


@dataclass(frozen=True)
class EngineSpeed:
    """The result of `measure`; speeds are in tokens per second, one sample a round."""

    model_id: str
    cpu_model: str
    isa: str
    threads: int
    weight_bytes: int  # read once per decoded token
    decode: Samples
    prompt: dict[int, Samples]  # by prompt length
    bound: Samples  # a plain sequential read of the weights

    @property
    def share_of_bound(self) -> float:
        """Median over the rounds of decode speed / the limit measured in the same round."""
        return statistics.median(d / b for d, b in zip(self.decode.values, self.bound.values, strict=True))

    def report(self) -> str:
        """A table for people: medians, and in brackets the slowest and the fastest round."""
        megabytes = self.weight_bytes / 1e6
        rows = [
            f"{self.model_id}: {megabytes:,.1f} MB read per token",
            f"{self.cpu_model}: {self.isa}, {self.threads} thread{'s' * (self.threads != 1)}",
            f"decode        {self.decode}   {self.decode.median * megabytes / 1e3:,.1f} GB/s",
            *(f"prompt {length:5}  {samples}" for length, samples in self.prompt.items()),
            f"read limit    {self.bound}   {self.bound.median * megabytes / 1e3:,.1f} GB/s",
            f"decode runs at {self.share_of_bound:.2f} of the read limit "
            f"(median of {len(self.decode.values)} rounds, each measured both)",
        ]
        return "\n".join(rows)

    def to_json(self) -> str:
        """Every sample, with the medians and the share."""
        summary = {
            "decode_tokens_per_s": self.decode.median,
            "prompt_tokens_per_s": {length: samples.median for length, samples in self.prompt.items()},
            "bound_tokens_per_s": self.bound.median,
            "share_of_bound": self.share_of_bound,
        }
        return json.dumps({**asdict(self), "summary": summary}, indent=2) + "\n"


def measure(engine: Engine, *, repeats: int = 5, on_round: Callable[[int], None] | None = None) -> EngineSpeed:
    """Measures decode, prompt and limit in turns, ``repeats`` times, after one round that only warms up.

    ``on_round`` is called as a round begins, with its number; 0 is the one that warms up.
    """
    lengths = [length for length in PROMPT_LENGTHS if length < engine.max_context]
    random_ids = random.Random(0)
    decode, bound = [], []
    prompt: dict[int, list[float]] = {length: [] for length in lengths}
    for number in range(repeats + 1):
        if on_round:
            on_round(number)
        limit = native.read_bandwidth(engine.weight_bytes, engine.threads) / engine.weight_bytes
        speed = _decode_speed(engine, random_ids)
        by_length = {length: _prompt_speed(engine, random_ids, length) for length in lengths}
        if number:
            bound.append(limit)
            decode.append(speed)
            for length, value in by_length.items():
                prompt[length].append(value)
    return EngineSpeed(
        model_id=engine.model_id,
        cpu_model=topology.detect().cpu_model,
        isa=engine.isa,
        threads=engine.threads,
        weight_bytes=engine.weight_bytes,
        decode=Samples(tuple(decode)),
        prompt={length: Samples(tuple(values)) for length, values in prompt.items()},
        bound=Samples(tuple(bound)),
    )


def _decode_speed(engine: Engine, random_ids: random.Random) -> float:
    tokens = min(DECODE_TOKENS, engine.max_context - DECODE_PROMPT)
    stream = engine.stream(_prompt(engine, random_ids, DECODE_PROMPT), max_tokens=tokens, ignore_eos=True)
    next(stream)  # the burst that also computed the prompt; what it decoded is not counted
    start = time.perf_counter()
    decoded = sum(len(delta.token_ids) for delta in stream)
    return decoded / (time.perf_counter() - start)


def _prompt_speed(engine: Engine, random_ids: random.Random, length: int) -> float:
    output = engine.generate(_prompt(engine, random_ids, length), max_tokens=1, ignore_eos=True)
    return length / output.timings.prefill_s


def _prompt(engine: Engine, random_ids: random.Random, length: int) -> list[int]:
    """Tokens never seen before, so that no prefix cache can help."""
    return [random_ids.randrange(engine.shape.vocab_size) for _ in range(length)]
