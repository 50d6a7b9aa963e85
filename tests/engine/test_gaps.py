"""How much of others' prompts is computed between two tokens of a running stream: counted, not timed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.engines import OpenEngine
from support.tiny import write_tiny_model
from ultrafast import Engine
from ultrafast.engine import engine as engine_module
from ultrafast.engine.lanes import _SLICE_S, _STEP_S, _URGENT_STEP_S
from ultrafast.engine.native import Lane, NativeSequence, Ran
from ultrafast.engine.sequence import Sequence
from ultrafast.engine.tiers import DEFAULT_TIERS, TIERS, ULTRAFAST, Tiers
from ultrafast.types import GenerateRequest, SamplingParams

# The machine that the engine believes to run on. Its time is a matter of rows alone.
STEP_S, ROW_S = 0.005, 0.0001
LAYERS = 4
CONTEXT = 4096
MOST_ROWS_DECODING = 40  # of all streams and prompts that have just ended
SHARED_PER_URGENT = (1 - DEFAULT_TIERS.share) / DEFAULT_TIERS.share


@dataclass
class Step:
    """A step of a lane, and what is left of it."""

    lane: Lane
    cost_s: float
    prompt_rows: int
    layers_left: int = LAYERS


class Machine:
    """Takes the place of an engine's native side and of its clock.

    The real one computes; but each burst is one step, which takes the time that its rows are said to take, and a slice
    that is too short for the rest of a step gets one layer of it.
    """

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1.0
        self.prompt_rows = 0.0  # so far; of a suspended step, the part that its layers are
        self._native = engine._native
        self._suspended: Step | None = None
        monkeypatch.setattr(engine_module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(engine, "_native", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def run(self, lane: Lane, burst: list[tuple[NativeSequence, int]], **limits: Any) -> Ran:
        rows = [min(sequence.num_pending, chunk) for sequence, chunk in burst]
        prompt_rows = sum(row for row, (sequence, _) in zip(rows, burst, strict=True) if sequence.num_pending > 1)
        assert sum(rows) - prompt_rows <= MOST_ROWS_DECODING
        step = Step(lane, STEP_S + ROW_S * sum(rows), prompt_rows)
        return self._compute(step, limits, lambda **options: self._native.run(lane, burst, **options))

    def resume(self, lane: Lane, **limits: Any) -> Ran:
        assert self._suspended is not None
        return self._compute(self._suspended, limits, lambda **options: self._native.resume(lane, **options))

    def _compute(self, step: Step, limits: dict[str, Any], compute: Any) -> Ran:
        left_s = step.cost_s * step.layers_left / LAYERS
        if cut := limits["slice"] and left_s > limits["time_limit_s"] and step.layers_left > 1:
            self._native.preempt()
        layers = 1 if cut else step.layers_left
        ran: Ran = compute(max_steps=1, time_limit_s=1e5)
        assert ran.suspended == cut
        step.layers_left -= layers
        self.now += step.cost_s * layers / LAYERS
        self.prompt_rows += step.prompt_rows * layers / LAYERS
        if step.lane is Lane.SHARED:
            self._suspended = step if cut else None
        return ran


def rows(seconds: float) -> float:
    """Prompt tokens that the machine computes in that time, if it does nothing else."""
    return seconds / ROW_S


# A step of a lane with as many prompt tokens as its length allows, and everything beside them.
LONGEST_S = _STEP_S + STEP_S + MOST_ROWS_DECODING * ROW_S
LAYER_S = LONGEST_S / LAYERS


def bound(stream: Sequence, lanes: set[Lane]) -> float:
    """Prompt tokens of others between two tokens of a stream, at most; see the test."""
    own = rows(_URGENT_STEP_S if stream.lane is Lane.URGENT else _STEP_S)
    if len(lanes) == 1:
        return own
    if stream.lane is Lane.URGENT:
        return own + rows(_SLICE_S + SHARED_PER_URGENT * LONGEST_S + LAYER_S)
    without_prompts_s = STEP_S + MOST_ROWS_DECODING * ROW_S
    shared_s = LONGEST_S + without_prompts_s + LAYER_S + _SLICE_S
    return own + rows(shared_s / SHARED_PER_URGENT + LONGEST_S)


def arrivals(rng: random.Random, tiers: tuple[str, ...], count: int) -> Iterator[GenerateRequest]:
    """Prompts of all lengths up to thousands of tokens, most of them short."""
    for _ in range(count):
        length = rng.choice([rng.randrange(1, 40), rng.randrange(1, 400), rng.randrange(1000, 3000)])
        prompt = [rng.randrange(3, 280) for _ in range(length)]
        params = SamplingParams(max_tokens=rng.randrange(1, 20), ignore_eos=True)
        yield GenerateRequest(prompt, params, rng.choice(tiers))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("tiers", [TIERS, (ULTRAFAST,), TIERS[1:], ("default", "flex"), (ULTRAFAST, "default")])
def test_a_stream_waits_for_few_prompt_tokens_of_others(
    open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiers: tuple[str, ...], seed: int
) -> None:
    """Between two tokens of a running stream, whatever arrives, are computed at most:

    - of the prompts of its own lane, what is meant for one step: 50 ms of them, and 20 ms beside an `ultrafast` stream;
    - for a stream of `ultrafast`, of the other lane one slice: its 8 ms, what one step of `ultrafast` more owes to it,
      and the layer in which it ends;
    - for another stream, of `ultrafast` nine times what its own lane computes meanwhile (a step with prompts, one of
      `fast` streams, the last layer of the slice before, and up to 8 ms that it is owed), and the step that it ends in.

    Nothing here depends on how fast the machine is: it is a machine where rows take a set time.
    """
    rng = random.Random(seed)
    policies = {tier: replace(policy, slots=8, speculation=False) for tier, policy in DEFAULT_TIERS.policies.items()}
    policies["default"] = replace(policies["default"], slots=24)
    model = write_tiny_model(tmp_path / "long.gguf", layers=LAYERS, context=CONTEXT)
    engine = open_engine(model, tiers=Tiers(policies), cache_mib=0)
    machine = Machine(engine, monkeypatch)
    lanes = {Lane.URGENT if tier == ULTRAFAST else Lane.SHARED for tier in tiers}
    endless = SamplingParams(max_tokens=CONTEXT - 20, ignore_eos=True)
    streams = [engine.add(GenerateRequest([5, 6, 7 + i], endless, tier)) for tier in tiers for i in range(2)]
    last: dict[Sequence, float] = {}
    longest = dict.fromkeys(streams, 0.0)
    waiting = list(arrivals(rng, tiers, 14))
    running: set[Sequence] = set()
    while waiting or running:
        if waiting and len(last) == len(streams) and len(running) < 12 and rng.random() < 0.05:
            running |= {engine.add(waiting.pop()) for _ in range(rng.choice([1, 1, 4])) if waiting}
        for sequence, _ in engine.step():
            if sequence in longest:
                longest[sequence] = max(longest[sequence], machine.prompt_rows - last.get(sequence, math.inf))
                last[sequence] = machine.prompt_rows
        running = {sequence for sequence in running if sequence.finish_reason is None}
    for stream in streams:
        assert stream.num_preempted == 0
        assert 0 < longest[stream] <= bound(stream, lanes)
        engine.cancel(stream)
