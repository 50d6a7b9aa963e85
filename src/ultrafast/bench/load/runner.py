"""A run from beginning to end: lengths calibrated, warm-up, the segments in turns, and the check of the client."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ultrafast.bench.client.call import Call
from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.endpoint import Endpoint
from ultrafast.bench.load.arrivals import ClosedLoop, OpenLoop
from ultrafast.bench.load.calibrate import gauge_of
from ultrafast.bench.load.interrupts import Interrupts
from ultrafast.bench.load.material import Category
from ultrafast.bench.load.plan import Cell, Segment, segments
from ultrafast.bench.load.pool import Pool
from ultrafast.bench.load.prompts import Gauge, Writer
from ultrafast.bench.load.selfcheck import Echo, check
from ultrafast.bench.load.summary import Stretch
from ultrafast.bench.load.worker import Ended, Order, Report, Sampling

EVENTS_PER_WORKER = 4000
"""Chunks a second that one process reads with ease."""
_WARM_UP_NUMBER = 1 << 40  # its prompts are not those of the run
_MAX_WARM_UP = 64

Progress = Callable[[str, int, int, int, int], None]
"""What goes on, calls ended and to come, calls that failed, output tokens."""


@dataclass(frozen=True, slots=True)
class Setup:
    """All it takes to run.

    Attributes:
        endpoints: by tier.
        calls, duration_s: of each cell; at least one of them.
        warm_up: calls before each cell's first segment; ``None``: as many as are in flight.
        shared_tokens: what all prompts begin with alike.
        tokenizer: a ``tokenizer.json`` to recount answers with.
        workers: processes; ``None``: as many as the rate of events wants.
    """

    cells: Sequence[Cell]
    endpoints: Mapping[str | None, Endpoint]
    category: Category
    sampling: Sampling
    calls: int | None
    duration_s: float | None
    warm_up: int | None = None
    shared_tokens: int = 0
    timeout_s: float = 600.0
    tokenizer: Path | None = None
    workers: int | None = None


@dataclass(slots=True)
class Measured:
    """What was measured of one cell."""

    stretches: list[Stretch] = field(default_factory=list)
    loop_lags_s: list[float] = field(default_factory=list)
    send_lags_s: list[float] = field(default_factory=list)

    @property
    def calls(self) -> list[Call]:
        return [call for stretch in self.stretches for call in stretch.calls]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run.

    Attributes:
        cells: one for each of the set-up, in the same order.
        echo: ``None`` when there was nothing to check.
        is_complete: it was not interrupted.
    """

    cells: Sequence[Measured]
    gauges: Mapping[str | None, Gauge]
    echo: Echo | None
    workers: int
    is_complete: bool


def run(setup: Setup, clock: RunClock, progress: Progress, on_call: Callable[[Call], None]) -> Run:
    """Measures; an interrupt ends it, with what is done by then.

    Args:
        on_call: gets every call of warm-up and measurement, when its segment is over.

    Raises:
        ServerError: the endpoint does not answer a first call.
        ResourceError: a worker process died.
    """
    gauges = {
        tier: gauge_of(
            endpoint,
            clock,
            setup.category,
            seed=setup.sampling.seed,
            tokens=[_typical(cell)[0] for cell in setup.cells],
            timeout_s=setup.timeout_s,
        )
        for tier, endpoint in setup.endpoints.items()
    }
    with Interrupts() as interrupts, Pool(clock) as pool:
        run = _Run(setup, gauges, pool, interrupts, progress, on_call)
        run.warm_up()
        run.measure()
        echo = run.check(clock)
        return Run(run.cells, gauges, echo, len(pool), not interrupts)


class _Run:
    def __init__(
        self,
        setup: Setup,
        gauges: Mapping[str | None, Gauge],
        pool: Pool,
        interrupts: Interrupts,
        progress: Progress,
        on_call: Callable[[Call], None],
    ) -> None:
        self._setup = setup
        self._gauges = gauges
        self._pool = pool
        self._interrupts = interrupts
        self._progress = progress
        self._on_call = on_call
        self._ended = self._failed = self._tokens = 0
        self.cells = [Measured() for _ in setup.cells]

    def warm_up(self) -> None:
        """Opens connections and wakes the server up; what is seen tells how many workers are needed."""
        wanted = self._setup.workers or 1
        self._pool.grow(wanted)
        for place, cell in enumerate(self._setup.cells):
            in_flight = min(cell.load.in_flight_limit or 1, _MAX_WARM_UP)
            calls = in_flight if self._setup.warm_up is None else self._setup.warm_up
            if not calls or self._interrupts:
                continue
            prompt, output = _typical(cell)
            load = ClosedLoop(min(calls, in_flight))
            warm = replace(cell, prompt_tokens=prompt, output_tokens=output, load=load)
            self._progress(f"warm-up: {cell.name}", 0, 0, 0, 0)
            segment = Segment(place, 0, calls, None, _WARM_UP_NUMBER + place * 1000)
            report = self._carry_out(segment, warm, "warm-up")
            wanted = max(wanted, _workers_for(cell, report.calls))
        if self._setup.workers is None:
            self._pool.grow(wanted)

    def measure(self) -> None:
        """All segments, in their order."""
        setup = self._setup
        plan = segments(setup.cells, calls=setup.calls, duration_s=setup.duration_s, seed=setup.sampling.seed)
        total = 0 if setup.calls is None else sum(segment.calls for segment in plan)
        for segment in plan:
            if self._interrupts:
                return
            cell, measured = setup.cells[segment.cell], self.cells[segment.cell]

            def on_ended(ended: Ended, cell: Cell = cell) -> None:
                self._ended += 1
                self._failed += not ended.is_ok
                self._tokens += ended.output_tokens
                self._progress(cell.name, self._ended, total, self._failed, self._tokens)

            report = self._carry_out(segment, cell, "measure", on_ended)
            ends = [call.done_s for call in report.calls if call.done_s is not None]
            if ends:
                begin_s = min(call.intended_s for call in report.calls)
                measured.stretches.append(Stretch(report.calls, max(ends) - begin_s))
            measured.loop_lags_s += report.loop_lags_s
            measured.send_lags_s += report.send_lags_s

    def check(self, clock: RunClock) -> Echo | None:
        """The client against an echo server, at the highest rate of events that was seen."""
        seen = [
            (sum(len(call.chunks) for call in stretch.calls) / stretch.wall_s, _most_in_flight(stretch.calls))
            for measured in self.cells
            for stretch in measured.stretches
            if stretch.wall_s > 0
        ]
        if not seen or self._interrupts:
            return None
        events_per_s = max(rate for rate, _ in seen)
        streams = max(most for _, most in seen)
        self._progress("check of the client", self._ended, self._ended, self._failed, self._tokens)
        return check(self._pool, clock, self._interrupts, streams=streams, events_per_s=events_per_s)

    def _carry_out(
        self, segment: Segment, cell: Cell, phase: str, on_ended: Callable[[Ended], None] = lambda ended: None
    ) -> Report:
        setup = self._setup
        writer = Writer(setup.category, self._gauges[cell.tier], setup.sampling.seed, setup.shared_tokens)
        endpoint = setup.endpoints[cell.tier]
        order = Order(segment, cell, endpoint, writer, setup.sampling, phase, setup.timeout_s, setup.tokenizer)
        report = self._pool.run(order, self._interrupts, on_ended)
        for call in report.calls:
            self._on_call(call)
        return report


def _typical(cell: Cell) -> tuple[int, int]:
    """Tokens in and out of a call to warm up with."""
    if cell.prompt_tokens is not None and cell.output_tokens is not None:
        return cell.prompt_tokens, cell.output_tokens
    return 128, 32


def _workers_for(cell: Cell, calls: Sequence[Call]) -> int:
    """Processes that the rate of events wants, from what warm-up saw."""
    spans = [
        (len(call.chunks), call.done_s - call.sent_s)
        for call in calls
        if call.is_ok and call.done_s is not None and call.sent_s is not None
    ]
    seconds = sum(span for _, span in spans)
    if not seconds:
        return 1
    load = cell.load
    events_per_call_s = sum(chunks for chunks, _ in spans) / seconds
    in_flight = load.in_flight_limit or (load.rate * seconds / len(spans) if isinstance(load, OpenLoop) else 16)
    wanted = math.ceil(in_flight * events_per_call_s / EVENTS_PER_WORKER)
    return max(1, min(wanted, os.cpu_count() or 1))


def _most_in_flight(calls: Sequence[Call]) -> int:
    moments = [(call.sent_s, 1) for call in calls if call.sent_s is not None and call.done_s is not None]
    moments += [(call.done_s, -1) for call in calls if call.sent_s is not None and call.done_s is not None]
    most = now = 0
    for _, step in sorted(moments):
        now += step
        most = max(most, now)
    return max(1, most)
