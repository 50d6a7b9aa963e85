"""The arithmetic of the engine benchmark, on timings that are known; and one small real run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ultrafast.bench.engine import cases, report, speed
from ultrafast.bench.engine.cases import Case, Timing
from ultrafast.bench.engine.limits import Demand
from ultrafast.bench.engine.process_memory import Memory
from ultrafast.bench.engine.samples import Samples
from ultrafast.bench.engine.speed import Measurement
from ultrafast.engine import native
from ultrafast.engine.engine import Engine
from ultrafast.engine.native import Profile, ReadSpeed, StageTime
from ultrafast.models.ggml_type import GgmlType
from ultrafast.types import GenerateRequest


class TimedEngine:
    """Computes a prompt in 0.5 s and makes a step of all its sequences, 3 tokens each, in 0.3 s of its `clock`."""

    shape = SimpleNamespace(vocab_size=1000)

    def __init__(self) -> None:
        self.clock = 0.0
        self.sequences: list[Any] = []
        self.cancelled: list[Any] = []
        self.profiles: list[bool] = []

    def add(self, request: GenerateRequest) -> Any:
        assert request.params.ignore_eos
        timings = SimpleNamespace(prefill_s=0.5)
        self.sequences.append(SimpleNamespace(request=request, num_output=0, finish_reason=None, timings=timings))
        return self.sequences[-1]

    def step(self) -> None:
        for sequence in self.sequences:
            if sequence.num_output == 0:
                self.clock += 0.5
                sequence.num_output = 1
                return
        self.clock += 0.3
        for sequence in self.sequences:
            sequence.num_output += 3
            if sequence.num_output >= sequence.request.params.max_tokens:
                sequence.finish_reason = "length"

    def cancel(self, sequence: Any) -> None:
        self.cancelled.append(sequence)

    def profile(self, on: bool) -> Profile:
        self.profiles.append(on)
        return Profile({}, len(self.profiles))


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> TimedEngine:
    engine = TimedEngine()
    monkeypatch.setattr(cases.time, "perf_counter", lambda: engine.clock)
    return engine


def test_a_case_alone(timed: TimedEngine) -> None:
    timing = cases.run(timed, Case(100, 10), random.Random(0), profile=True)  # type: ignore[arg-type]
    assert (timing.prompt_s, timing.first_token_s) == (0.5, 0.5)
    assert timing.step_s == pytest.approx(0.1)
    assert timing.mean_context == pytest.approx(100 + 1 + 4.5)
    assert timed.profiles == [True, False]
    assert timing.profile == Profile({}, 2)
    assert timed.cancelled == timed.sequences


def test_sequences_together_are_timed_once_all_decode(timed: TimedEngine) -> None:
    timing = cases.run(timed, Case(20, 7, sequences=4), random.Random(0))  # type: ignore[arg-type]
    assert timing.first_token_s == 0.5
    assert timing.step_s == pytest.approx(0.1)
    prompts = {tuple(sequence.request.prompt_ids) for sequence in timed.sequences}
    assert {len(prompt) for prompt in prompts} == {20}
    assert len(prompts) == 4


def test_a_prompt_alone_has_no_step(timed: TimedEngine) -> None:
    timed.step = lambda: vars(timed.sequences[0]).update(num_output=1, finish_reason="length")  # type: ignore[method-assign]
    assert cases.run(timed, Case(20, 1), random.Random(0)).step_s is None  # type: ignore[arg-type]


def test_the_plan_fits_the_context() -> None:
    everything = cases.plan(8192)
    assert {case.context for case in everything} == {32, 64, 512, 2048, 4096, 8000}
    assert {case.sequences for case in everything} == {1, 2, 4, 8, 16, 32}
    assert max(case.context for case in cases.plan(8192, quick=True)) == 2048
    for limit in (16, 64, 600, 2048, 5000):
        planned = cases.plan(limit)
        assert all(case.context + case.tokens <= limit for case in planned)
        assert planned[0].tokens > 1


def test_shares_compare_the_same_round() -> None:
    assert Samples((2.0, 3.0, 4.0)).share_of(Samples((4.0, 12.0, 8.0))) == 0.5  # of 0.5, 0.25 and 0.5
    with pytest.raises(ValueError, match="shorter"):
        Samples((1.0, 2.0)).share_of(Samples((1.0,)))


def test_the_work_of_a_step(tiny_model_path: Path) -> None:
    with Engine(tiny_model_path, threads=1, isa="scalar") as engine:
        demand = Demand(engine)
        shape = engine.shape
        step = demand.decode_step(10, 3)
        # Keys and values of 2 layers, 2 KV heads of 16 dimensions, 2 bytes each.
        assert step.bytes == engine.weight_bytes + 3 * 10 * (2 * 2 * 2 * 16 * 2)
        attention, ffn = 64 * (64 + 32 + 32 + 64), 3 * 64 * 128
        assert step.matmul == 3 * (2 * (attention + ffn) + 64 * shape.vocab_size)
        assert step.attention == 3 * 10 * (2 * 2 * 4 * 16)  # scores and values, 2 layers, 4 heads of 16
        prompt = demand.prompt(10)
        assert prompt.matmul == 10 * 2 * (attention + ffn) + 64 * shape.vocab_size
        assert prompt.attention == 55 * (2 * 2 * 4 * 16)  # 1 + 2 + … + 10 positions


@pytest.fixture
def load(tiny_model_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Engine]:
    """A real engine on a machine of known speed; its cases take 2 s a prompt and 10, 20, 30 … ms a step."""
    steps = iter(range(1, 1000))

    def run(engine: Engine, case: Case, random_ids: object, *, profile: bool = False) -> Timing:
        stages = {"qkv": StageTime(0.25, 0.125), "sampling": StageTime(0.125, 0.0)}
        step_s = next(steps) / 100 if case.tokens > 1 else None
        return Timing(2.0, 2.5, step_s, case.context + 1.0, Profile(stages, 50) if profile else None)

    monkeypatch.setattr(speed.cases, "run", run)
    monkeypatch.setattr(native, "read_speed", lambda count, threads: ReadSpeed(count * 100.0, "2 streams"))
    monkeypatch.setattr(native, "matmul_speed", lambda **arguments: 1e9)
    monkeypatch.setattr(native, "attention_speed", lambda **arguments: 1e9)
    return lambda: Engine(tiny_model_path, threads=2, isa="scalar")


def test_rounds_and_report(load: Callable[[], Engine]) -> None:
    progress: list[tuple[str, int, int]] = []
    measurement = Measurement(load, repeats=3, profile=True, on_progress=lambda *step: progress.append(step))
    measurement.run()
    result = measurement.result
    assert result is not None
    assert result.complete
    assert [done for _, done, _ in progress[1:]] == list(range(progress[-1][2]))
    # A round decodes alone, 2, 4, 8, 16 and 32 together, then profiled: the first figure is every seventh.
    alone = result.figures["decode_context_64"]
    assert alone.values == pytest.approx([100 / 1, 100 / 8, 100 / 15])
    weights, cache = result.weight_bytes, 65 * 256  # positions, and bytes of each
    assert alone.by_bytes == pytest.approx([100 * weights / (weights + cache)] * 3)
    assert alone.binding == "bytes"
    assert alone.share == alone.share_of_bytes == pytest.approx(12.5 / alone.by_bytes[0])
    assert result.figures["decode_sequences_16"].values[0] == pytest.approx(16 * 100 / 5)
    assert result.figures["prompt_64"].values == pytest.approx([32.0] * 3)
    assert result.first_token_s[64] == [2.5] * 3
    assert len(result.load_s) == 3
    assert result.profile == Profile({"qkv": StageTime(0.75, 0.375), "sampling": StageTime(0.375, 0.0)}, 150)

    document = json.loads(report.to_json(result))
    figure = document["tokens_per_s"]["decode_context_64"]
    assert figure["median"] == pytest.approx(12.5)
    assert figure["limit_set_by"] == "bytes"
    assert document["read_methods"] == {"2 streams": 3}
    assert document["profile"]["stages_us"]["qkv"] == {"work": 5000.0, "wait": 2500.0}
    assert document["profile"]["python_us"] == pytest.approx(document["profile"]["step_us"] - 10_000)

    lines = {line[:22].strip(): line[22:].split() for line in report.report(result).splitlines()}
    assert lines["decode at 64"][:5] == ["12", "(7", "to", "100)", f"{alone.by_bytes[0]:.0f}"]
    assert f"decode at 64 runs at {12.5 / alone.by_bytes[0]:.2f} of the speed" in report.report(result)
    assert lines["qkv"] == ["5,000.0", "2,500.0"]
    assert lines["first token after 64"] == ["2,500.0", "(2,500.0", "to", "2,500.0)", "ms"]


def test_an_interrupt_leaves_what_was_measured(load: Callable[[], Engine]) -> None:
    def stop(title: str, done: int, total: int) -> None:
        if title == "decode, 4 sequences":
            raise KeyboardInterrupt

    measurement = Measurement(load, repeats=3, on_progress=stop)
    with pytest.raises(KeyboardInterrupt):
        measurement.run()
    assert measurement.result is not None
    assert not measurement.result.complete
    assert list(measurement.result.figures) == ["prompt_64", "decode_context_64", "decode_sequences_2"]
    assert "interrupted" in report.report(measurement.result)
    document = json.loads(report.to_json(measurement.result))
    assert (document["complete"], document["load_s"], document["profile"]) == (False, None, None)


def test_memory_adds_up() -> None:
    memory = Memory(file=100, before_load=60, loaded=170, in_use=220, kv=30, context=8)
    assert memory.rest == 30
    assert memory.to_dict()["rest"] == 30


def test_a_real_engine(tiny_model_path: Path) -> None:
    measurement = Measurement(lambda: Engine(tiny_model_path, threads=1), repeats=1, profile=True)
    measurement.run()
    result = measurement.result
    assert result is not None
    assert all(figure.speed.median > 0 for figure in result.figures.values())
    assert result.profile is not None
    assert result.profile.steps > 0
    assert {"qkv", "attention", "gate_up", "logits", "sampling"} <= set(result.profile.stages)
    assert result.profile_s > sum(time.work_s + time.wait_s for time in result.profile.stages.values()) > 0


def test_the_matrix_kernel_is_not_timed_on_a_part_of_a_block() -> None:
    # 640 columns are two and a half blocks of Q4_K: the kernel would read past the weights.
    with pytest.raises(ValueError, match="multiple of 256"):
        native.matmul_speed(isa="scalar", type=int(GgmlType.Q4_K), cols=640, tokens=1, threads=1)
