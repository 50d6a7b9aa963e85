"""The worker processes, as one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Self

from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.load import worker
from ultrafast.bench.load.interrupts import Interrupts
from ultrafast.bench.load.worker import STOP, Ended, Order, Report
from ultrafast.errors import ResourceError

_BEGIN_S = 0.02  # from giving the sign to the start that they have in common
_LOOK_S = 0.1  # how often to look for an interrupt


@dataclass(frozen=True, slots=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection


class Pool:
    """Workers that share one clock; they live until the end of the block."""

    def __init__(self, clock: RunClock) -> None:
        self._clock = clock
        self._workers: list[_Worker] = []

    def __len__(self) -> int:
        return len(self._workers)

    def __enter__(self) -> Self:
        self.grow(1)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for each in self._workers:
            each.pipe.close()
        for each in self._workers:
            each.process.join(timeout=5)
            each.process.kill()

    def grow(self, count: int) -> None:
        """Starts workers until there are so many."""
        # A child that is not forked has none of the parent's threads and locks, on every system.
        context = multiprocessing.get_context("spawn")
        while len(self._workers) < count:
            ours, theirs = context.Pipe()
            process = context.Process(target=worker.main, args=(theirs, self._clock), daemon=True)
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))

    def run(
        self, order: Order, interrupts: Interrupts, on_ended: Callable[[Ended], None] = lambda ended: None
    ) -> Report:
        """Has the order carried out by all workers together; an interrupt stops them, and what is done comes back.

        Raises:
            ResourceError: a worker is gone.
        """
        limit = order.cell.load.in_flight_limit
        workers = self._workers[:limit]  # none without a share in the calls in flight
        for index, each in enumerate(workers):
            each.pipe.send(replace(order, worker=index, workers=len(workers)))
        waiting, busy = len(workers), [each.pipe for each in workers]
        report, is_stopped = Report(), False
        while busy:
            if interrupts and not is_stopped:
                is_stopped = True
                for pipe in busy:
                    pipe.send(STOP)
            ready = wait(busy, _LOOK_S)
            for pipe in [pipe for pipe in busy if pipe in ready]:
                match _receive(pipe):
                    case Ended() as ended:
                        on_ended(ended)
                    case Report() as done:
                        report.add(done)
                        busy.remove(pipe)
                    case _:
                        waiting -= 1
                        if not waiting and not is_stopped:
                            begins_s = self._clock.now() + _BEGIN_S
                            for each in workers:
                                each.pipe.send(begins_s)
        report.calls.sort(key=lambda call: call.intended_s)
        return report


def _receive(pipe: Connection) -> Any:
    """`Ended`, `READY` or `Report`."""
    try:
        return pipe.recv()
    except (EOFError, OSError):
        raise ResourceError("a process that makes the calls is gone: is there too little memory?") from None
