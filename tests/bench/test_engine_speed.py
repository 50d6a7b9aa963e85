"""The arithmetic of the engine benchmark, on timings that are known; and one small real run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ultrafast.bench import engine_speed
from ultrafast.engine.engine import Engine
from ultrafast.types import Timings, TokenDelta


class TimedEngine:
    """Prefills at 1,000 tokens/s and decodes at 100, 200, 300 … tokens/s on its `clock`, faster each time."""

    model_id = "timed"
    isa = "scalar"
    threads = 2
    weight_bytes = 10_000_000
    shape = SimpleNamespace(vocab_size=1000)

    max_context = 1024

    def __init__(self) -> None:
        self.prompts: list[tuple[int, ...]] = []
        self.decodes = 0
        self.clock = 0.0

    def generate(self, prompt: list[int], *, max_tokens: int, ignore_eos: bool) -> Any:
        assert max_tokens == 1
        self.prompts.append(tuple(prompt))
        timings = Timings(arrived=1.0, started=5.0, first_token=5.0 + len(prompt) / 1000)
        return SimpleNamespace(timings=timings)

    def stream(self, prompt: list[int], *, max_tokens: int, ignore_eos: bool) -> Iterator[TokenDelta]:
        assert ignore_eos
        self.prompts.append(tuple(prompt))
        self.decodes += 1
        for _ in range(0, max_tokens, 8):
            self.clock += 8 / (100 * self.decodes)
            yield TokenDelta("", range(8))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> TimedEngine:
    """Reads of 5 GB/s, then 4, 6, 12: 500 tokens/s of 10 MB in the warm-up round, then 400, 600 and 1,200."""
    answers = iter([5e9, 4e9, 6e9, 12e9])

    def read_bandwidth(count: int, threads: int) -> float:
        assert (count, threads) == (TimedEngine.weight_bytes, TimedEngine.threads)
        return next(answers)

    engine = TimedEngine()
    monkeypatch.setattr(engine_speed.native, "read_bandwidth", read_bandwidth)
    monkeypatch.setattr(engine_speed.time, "perf_counter", lambda: engine.clock)
    return engine


def test_speeds_from_known_timings(engine: TimedEngine) -> None:
    rounds: list[int] = []
    result = engine_speed.measure(engine, repeats=3, on_round=rounds.append)  # type: ignore[arg-type]
    assert rounds == [0, 1, 2, 3]
    assert result.decode.values == pytest.approx((200, 300, 400))
    assert result.bound.values == pytest.approx((400, 600, 1200))
    assert result.share_of_bound == pytest.approx(0.5)  # of 0.5, 0.5 and 0.33: pairs of the same round
    assert {length: samples.median for length, samples in result.prompt.items()} == pytest.approx({64: 1000, 512: 1000})
    assert len(set(engine.prompts)) == len(engine.prompts) == 4 * 3

    summary = json.loads(result.to_json())["summary"]
    assert summary["decode_tokens_per_s"] == pytest.approx(300)
    assert summary["bound_tokens_per_s"] == pytest.approx(600)
    decode, *_ = (line for line in result.report().splitlines() if line.startswith("decode"))
    assert decode.split() == ["decode", "300", "tokens/s", "(200", "to", "400)", "3.0", "GB/s"]


def test_prompts_that_do_not_fit_are_left_out(engine: TimedEngine) -> None:
    engine.max_context = 100
    result = engine_speed.measure(engine, repeats=1)  # type: ignore[arg-type]
    assert list(result.prompt) == [64]
    assert max(map(len, engine.prompts)) == 64


def test_a_real_engine(tiny_model_path: Path) -> None:
    with Engine(tiny_model_path, threads=1) as engine:
        result = engine_speed.measure(engine, repeats=1)
    assert result.decode.median > 0
    assert result.bound.median > 0
    assert all(samples.median > 0 for samples in result.prompt.values())
