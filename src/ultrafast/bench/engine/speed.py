"""How fast the engine is alone, beside what the machine allows: all in turns, so that all see the same machine."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ultrafast.bench.engine import cases
from ultrafast.bench.engine.cases import Case, Timing
from ultrafast.bench.engine.limits import Bound, Demand, MachineSpeed, Work
from ultrafast.bench.engine.process_memory import Memory, resident_bytes
from ultrafast.bench.engine.samples import Samples
from ultrafast.engine import memory, native, topology
from ultrafast.engine.native import Profile, StageTime

if TYPE_CHECKING:
    from ultrafast.engine.engine import Engine

_MEMORY_CONTEXT = 2048  # tokens in the KV cache when memory is looked at


@dataclass(slots=True)
class Figure:
    """One speed over the rounds, in tokens per second, beside its limits in the same rounds."""

    title: str
    values: list[float] = field(default_factory=list)
    by_bytes: list[float] = field(default_factory=list)
    by_arithmetic: list[float] = field(default_factory=list)

    def add(self, tokens: int, seconds: float, bound: Bound) -> None:
        self.values.append(tokens / seconds)
        self.by_bytes.append(tokens / bound.bytes_s)
        self.by_arithmetic.append(tokens / bound.arithmetic_s if bound.arithmetic_s else math.inf)

    @property
    def speed(self) -> Samples:
        return Samples(tuple(self.values))

    @property
    def share_of_bytes(self) -> float:
        return self.speed.share_of(Samples(tuple(self.by_bytes)))

    @property
    def share(self) -> float:
        """Of the limit that binds, which is the lower one."""
        return self.speed.share_of(Samples(tuple(map(min, self.by_bytes, self.by_arithmetic))))

    @property
    def binding(self) -> str:
        """What sets the limit: ``bytes`` or ``arithmetic``."""
        return "bytes" if statistics.median(self.by_bytes) < statistics.median(self.by_arithmetic) else "arithmetic"


@dataclass(slots=True)
class EngineSpeed:
    """The result of `Measurement`: what is there was measured, also after an interrupt."""

    model_id: str
    cpu_model: str
    isa: str
    threads: int
    weight_bytes: int  # read once per decoded token
    complete: bool = False
    read_bytes_per_s: list[float] = field(default_factory=list)
    read_methods: Counter[str] = field(default_factory=Counter)
    figures: dict[str, Figure] = field(default_factory=dict)
    first_token_s: dict[int, list[float]] = field(default_factory=dict)  # by prompt length
    load_s: list[float] = field(default_factory=list)
    memory: Memory | None = None
    profile: Profile | None = None
    profile_s: float = 0.0  # wall time of the profiled steps, Python's part included


class Measurement:
    """Measures into `result`, step by step.

    Args:
        load: opens the engine; called a few times, for the time that it takes.
        on_progress: called with what comes next, the steps done and their number.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        *,
        repeats: int,
        quick: bool = False,
        profile: bool = False,
        on_progress: Callable[[str, int, int], None] = lambda title, done, total: None,
    ) -> None:
        self._load = load
        self._repeats = repeats
        self._quick = quick
        self._profile = profile
        self._on_progress = on_progress
        self._random_ids = random.Random(0)
        self._done = self._total = 0
        self.result: EngineSpeed | None = None

    def run(self) -> None:
        """All of it. An exception, such as an interrupt, leaves `result` with what is measured by then."""
        before_load = resident_bytes()
        with self._opened() as engine:
            self.result = EngineSpeed(
                engine.model_id, topology.detect().cpu_model, engine.isa, engine.threads, engine.weight_bytes
            )
            planned = cases.plan(engine.max_context, quick=self._quick)
            rounds = [[case for case in planned if number % case.every == 0] for number in range(self._repeats)]
            self._total = 2 + sum(map(len, rounds)) + self._repeats * (1 + self._profile)
            self._look_at_memory(engine, before_load)
            for in_round in rounds:
                self._round(engine, self.result, in_round, shortest=planned[0])
        self._time_loading(self.result)
        self.result.complete = True

    @contextmanager
    def _opened(self) -> Iterator[Engine]:
        self._on_progress("loading", 0, 1)
        with self._load() as engine:
            yield engine

    def _step(self, title: str) -> None:
        self._on_progress(title, self._done, self._total)
        self._done += 1

    def _look_at_memory(self, engine: Engine, before_load: int | None) -> None:
        """Resident memory when loaded and with a long sequence in the KV cache; this also warms up."""
        assert self.result is not None
        self._step("warming up")
        loaded = resident_bytes()
        context = min(_MEMORY_CONTEXT, engine.max_context - 2)
        with cases.held(engine, context, self._random_ids):
            stats = engine.stats()
            kv_blocks = stats["num_blocks"] - stats["free_blocks"]
            in_use = resident_bytes()
        if before_load is not None and loaded is not None and in_use is not None:
            self.result.memory = Memory(
                file=engine.path.stat().st_size,
                before_load=before_load,
                loaded=loaded,
                in_use=in_use,
                kv=kv_blocks * memory.kv_block_bytes(engine.shape, isa=engine.isa),
                context=context,
            )

    def _round(self, engine: Engine, result: EngineSpeed, planned: list[Case], *, shortest: Case) -> None:
        self._step("reading memory")
        demand, machine = Demand(engine), MachineSpeed(engine)
        result.read_bytes_per_s.append(machine.read.bytes_per_s)
        result.read_methods[machine.read.method] += 1
        for case in planned:
            self._step(case.name)
            timing = cases.run(engine, case, self._random_ids)
            _record(result, case, timing, demand, machine)
        if self._profile:
            self._step("profile")
            timing = cases.run(engine, shortest, self._random_ids, profile=True)
            assert timing.profile is not None
            assert timing.step_s is not None
            result.profile_s += timing.step_s * timing.profile.steps
            result.profile = _sum(result.profile, timing.profile)

    def _time_loading(self, result: EngineSpeed) -> None:
        """With the file in the system's cache, and the process's own memory free again."""
        self._step("loading")
        for _ in range(self._repeats):
            start = time.perf_counter()
            with self._load():
                result.load_s.append(time.perf_counter() - start)


def _record(result: EngineSpeed, case: Case, timing: Timing, demand: Demand, machine: MachineSpeed) -> None:
    def add(key: str, title: str, tokens: int, seconds: float, work: Work) -> None:
        result.figures.setdefault(key, Figure(title)).add(tokens, seconds, machine.bound(work))

    alone = case.sequences == 1
    if alone:
        key, title = f"prompt_{case.context}", f"prompt of {case.context:,}"
        add(key, title, case.context, timing.prompt_s, demand.prompt(case.context))
        result.first_token_s.setdefault(case.context, []).append(timing.first_token_s)
    if timing.step_s is not None:
        key = f"decode_context_{case.context}" if alone else f"decode_sequences_{case.sequences}"
        work = demand.decode_step(timing.mean_context, case.sequences)
        add(key, case.name, case.sequences, timing.step_s, work)


def _sum(before: Profile | None, after: Profile) -> Profile:
    if before is None:
        return after
    stages = {
        name: StageTime(before.stages[name].work_s + time.work_s, before.stages[name].wait_s + time.wait_s)
        for name, time in after.stages.items()
    }
    return native.Profile(stages, before.steps + after.steps)
