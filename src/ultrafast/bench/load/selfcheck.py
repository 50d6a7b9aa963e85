"""Whether this client was quick enough for what it reports: its lags, held against the figures.

Three lags are measured. While the run goes on: how late the event loop reads what has come (`lag`), and how late calls
are started, waiting for room in flight apart. After it: how late events of an echo server are read, at the rate of
events and the number of streams that the run had.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.endpoint import Endpoint
from ultrafast.bench.load.arrivals import ClosedLoop
from ultrafast.bench.load.echo import EchoServer, delays_s
from ultrafast.bench.load.interrupts import Interrupts
from ultrafast.bench.load.plan import Cell, Segment
from ultrafast.bench.load.pool import Pool
from ultrafast.bench.load.prompts import Gauge, Writer
from ultrafast.bench.load.worker import Order, Sampling
from ultrafast.bench.statistics import needed_for

_LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

SHARE = 0.05
"""Of a figure: a client that is later than this makes the figure its own."""
BOUND_S = 0.1
"""Whatever the figure is."""

CHECK_S = 1.0
_EVENTS_AT_LEAST = 20


@dataclass(frozen=True, slots=True)
class Lag:
    """Quantiles of one lag, or of what it is held against, in seconds; ``nan`` without samples."""

    p50: float
    p95: float
    p99: float
    n: int

    @classmethod
    def of(cls, samples_s: Sequence[float]) -> Lag:
        if not samples_s:
            return cls(math.nan, math.nan, math.nan, 0)
        p50, p95, p99 = np.quantile(np.asarray(samples_s), (0.5, 0.95, 0.99))
        return cls(float(p50), float(p95), float(p99), len(samples_s))


@dataclass(frozen=True, slots=True)
class Echo:
    """What the check found."""

    streams: int
    events_per_s: float
    delay: Lag


def check(pool: Pool, clock: RunClock, interrupts: Interrupts, *, streams: int, events_per_s: float) -> Echo:
    """Reads from an echo server for about `CHECK_S`, with the processes of the run."""
    interval_s = min(CHECK_S / _EVENTS_AT_LEAST, streams / max(events_per_s, 1e-9))
    events = math.ceil(CHECK_S / interval_s)
    with EchoServer(clock, events=events, interval_s=interval_s) as server:
        order = Order(
            segment=Segment(cell=0, round=0, calls=streams, duration_s=None, first_number=0),
            cell=Cell(None, 1, 1, ClosedLoop(streams)),
            endpoint=Endpoint(server.url, "echo"),
            writer=Writer("prose", Gauge()),
            sampling=Sampling(),
            phase="check",
            timeout_s=60.0,
        )
        report = pool.run(order, interrupts)
    found = delays_s(report.calls)
    spans = [call.chunks[-1].at_s - call.chunks[0].at_s for call in report.calls if len(call.chunks) > 1]
    rate = len(found) / max(spans) if spans else 0.0
    return Echo(streams, rate, Lag.of(found))


def doubts(lags: Mapping[str, Lag], figures: Mapping[str, Lag]) -> list[str]:
    """Why the figures of a cell are not to be trusted; nothing when they are.

    A lag adds to every time that is measured: its median moves the median of a figure, its p99 the p99. Each is held
    against what is told of the figure: a p99 of few calls is not.

    Args:
        lags: by what they are lags of.
        figures: the same quantiles of the times that the cell reports, by their names.
    """
    found = []
    for what, lag in lags.items():
        if lag.p99 > BOUND_S:
            found.append(f"{what}: p99 is {lag.p99 * 1e3:.1f} ms, more than the {BOUND_S * 1e3:g} ms that are allowed")
            continue
        for name, figure in figures.items():
            quantiles = (("p50", lag.p50, figure.p50), ("p95", lag.p95, figure.p95), ("p99", lag.p99, figure.p99))
            for quantile, late, time in quantiles:
                if late > SHARE * time and figure.n >= needed_for(_LEVELS[quantile]):
                    share = f"{SHARE:.0%} of that of {name}, {time * 1e3:.1f} ms"
                    found.append(f"{what}: {quantile} is {late * 1e3:.1f} ms, more than {share}")
    return found
