"""One of the processes that make calls: an event loop with its clients, told what to do through a pipe.

While calls are in flight it does nothing else: no progress is drawn and no garbage collected here, and records go back
when a segment is over.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ultrafast.bench.client.call import Ask, Call
from ultrafast.bench.client.client import Client
from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.endpoint import Endpoint
from ultrafast.bench.load.arrivals import ClosedLoop
from ultrafast.bench.load.columns import is_answered
from ultrafast.bench.load.lag import LoopLag
from ultrafast.bench.load.plan import Cell, Segment, Wanted, wanted
from ultrafast.bench.load.prompts import Writer
from ultrafast.bench.load.recount import counter

READY, STOP = "ready", "stop"
_APART_S = 0.005  # between the first calls of a closed loop: all at once would measure how fast one process writes
_SPIN_S = 0.0015  # timers of event loops are exact to a millisecond: the rest of a wait is spent looking at the clock


@dataclass(frozen=True, slots=True)
class Sampling:
    """What is sent with every call, beside prompt and length.

    Attributes:
        seed: of the whole run: prompts, arrivals, and what is sent where `sends_seed`.
    """

    temperature: float | None = None
    seed: int = 0
    sends_seed: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Order:
    """What one worker does in one segment, once it is told when that begins.

    Attributes:
        phase: a tag of its calls: ``measure``, ``warm-up`` or ``check``.
    """

    segment: Segment
    cell: Cell
    endpoint: Endpoint
    writer: Writer
    sampling: Sampling
    phase: str
    timeout_s: float
    tokenizer: Path | None = None
    worker: int = 0
    workers: int = 1

    @property
    def in_flight_limit(self) -> int | None:
        """This worker's share; ``None``: any number."""
        limit = self.cell.load.in_flight_limit
        return limit and limit // self.workers + (self.worker < limit % self.workers)


@dataclass(frozen=True, slots=True)
class Ended:
    """News of one call, for the progress."""

    is_ok: bool
    output_tokens: int


@dataclass(slots=True)
class Report:
    """What came of an order.

    Attributes:
        loop_lags_s: see `LoopLag`.
        send_lags_s: by call: how late this process started it, waiting for room in flight apart.
    """

    calls: list[Call] = field(default_factory=list)
    loop_lags_s: list[float] = field(default_factory=list)
    send_lags_s: list[float] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.calls += other.calls
        self.loop_lags_s += other.loop_lags_s
        self.send_lags_s += other.send_lags_s


def main(pipe: Connection, clock: RunClock) -> None:
    """Carries out orders until the pipe closes. Ctrl-C is for the parent to handle, who then sends `STOP`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whoever waited for the news may be gone before us.
    with asyncio.Runner(loop_factory=_loop_factory()) as runner, suppress(BrokenPipeError, ConnectionResetError):
        runner.run(_serve(pipe, clock))


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return None
    return uvloop.new_event_loop


async def _serve(pipe: Connection, clock: RunClock) -> None:
    inbox: asyncio.Queue[Order | float | str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def receive() -> None:
        """In a thread: an event loop that reads the pipe would make it one that cannot wait to be written."""
        while True:
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                message = None
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(inbox.put_nowait, message)
            if message is None:
                return

    threading.Thread(target=receive, daemon=True).start()
    async with AsyncExitStack() as stack:
        clients = Clients(clock, stack)
        while (order := await inbox.get()) is not None:
            if not isinstance(order, Order):
                continue  # it came when there was nothing to stop any more
            work = _Work(order, clients, pipe)
            gc.collect()
            pipe.send(READY)
            begins_s = await inbox.get()
            if begins_s is None:
                return
            if not isinstance(begins_s, float):
                pipe.send(Report())
                continue
            doing, news = asyncio.create_task(work.run(begins_s)), asyncio.create_task(inbox.get())
            await asyncio.wait((doing, news), return_when=asyncio.FIRST_COMPLETED)
            (doing if news.done() else news).cancel()
            pipe.send(await doing)


class Clients:
    """Clients by endpoint, kept with their connections from segment to segment.

    One does for any number of calls at a time, but over a WebSocket, which takes them one after another.
    """

    def __init__(self, clock: RunClock, stack: AsyncExitStack) -> None:
        self.clock = clock
        self._stack = stack
        self._idle: dict[tuple[Any, ...], list[Client]] = {}

    async def take(self, order: Order) -> Client:
        idle = self._idle.setdefault(self._key(order), [])
        if idle:
            return idle.pop() if order.endpoint.api == "socket" else idle[0]
        count = counter(order.tokenizer) if order.tokenizer else None
        client = Client(order.endpoint, self.clock, timeout_s=order.timeout_s, count=count)
        await self._stack.enter_async_context(client)
        if order.endpoint.api != "socket":
            idle.append(client)
        return client

    def give_back(self, client: Client, order: Order) -> None:
        if order.endpoint.api == "socket":
            self._idle[self._key(order)].append(client)

    def _key(self, order: Order) -> tuple[Any, ...]:
        endpoint = order.endpoint
        return endpoint.base_url, endpoint.model, endpoint.api, endpoint.tier, order.timeout_s


class _Work:
    """One order being carried out."""

    def __init__(self, order: Order, clients: Clients, pipe: Connection) -> None:
        self._order = order
        self._clients = clients
        self._clock = clients.clock
        self._pipe = pipe
        self._report = Report()
        self._begins_s = 0.0
        calls = wanted(order.segment, order.cell, order.sampling.seed, worker=order.worker, workers=order.workers)
        first = [(want, self._ask(want)) for want in islice(calls, 1)]
        self._asks = chain(first, ((want, self._ask(want)) for want in calls))

    async def run(self, begins_s: float) -> Report:
        """What is done; when cancelled, what is done by then.

        Args:
            begins_s: on the clock of the run; the same for all workers.
        """
        self._begins_s = begins_s
        with _no_garbage_collection(), LoopLag() as lag:
            try:
                async with asyncio.TaskGroup() as group:
                    if isinstance(self._order.cell.load, ClosedLoop):
                        for place in range(self._order.in_flight_limit or 0):
                            group.create_task(self._keep_asking(place, self._order.cell.load.think_s))
                    else:
                        group.create_task(self._ask_on_time(group))
            except asyncio.CancelledError:
                pass
        self._report.loop_lags_s = lag.lags_s
        return self._report

    async def _keep_asking(self, place: int, think_s: float) -> None:
        due_s = self._begins_s + place * self._order.workers * _APART_S
        for want, ask in self._asks:  # shared by all who keep asking
            due_s = max(due_s, self._clock.now())
            if self._is_over(due_s):
                return
            await self._make(want, ask, due_s, room_s=due_s)
            due_s = self._clock.now() + think_s

    async def _ask_on_time(self, group: asyncio.TaskGroup) -> None:
        limit = self._order.in_flight_limit
        room = asyncio.Semaphore(limit) if limit else None
        for want, ask in self._asks:
            due_s = self._begins_s + (want.start_s or 0.0)
            await self._sleep_until(due_s - 2 * _SPIN_S)
            group.create_task(self._make_when_there_is_room(want, ask, due_s, room))

    async def _make_when_there_is_room(
        self, want: Wanted, ask: Ask, due_s: float, room: asyncio.Semaphore | None
    ) -> None:
        if room is None:
            await self._make(want, ask, due_s, room_s=due_s)
            return
        async with room:
            await self._make(want, ask, due_s, room_s=max(due_s, self._clock.now()))

    async def _make(self, want: Wanted, ask: Ask, due_s: float, *, room_s: float) -> None:
        client = await self._clients.take(self._order)
        await self._sleep_until(due_s)
        self._report.send_lags_s.append(max(0.0, self._clock.now() - room_s))
        call = await client.call(ask, id=f"{self._order.phase}-{want.number}", intended_s=due_s)
        self._clients.give_back(client, self._order)
        self._report.calls.append(call)
        self._pipe.send(Ended(is_answered(call), call.output_tokens or 0))

    async def _sleep_until(self, due_s: float) -> None:
        while (left_s := due_s - self._clock.now()) > 0:
            await asyncio.sleep(left_s - _SPIN_S if left_s > _SPIN_S else 0)

    def _ask(self, want: Wanted) -> Ask:
        order = self._order
        return Ask(
            order.writer.prompt(want.number, want.prompt_tokens, want.blocks),
            max_tokens=want.output_tokens,
            temperature=order.sampling.temperature,
            seed=order.sampling.seed + want.number if order.sampling.sends_seed else None,
            extra=order.sampling.extra,
            tags={
                "phase": order.phase,
                "cell": order.segment.cell,
                "round": order.segment.round,
                "prompt_tokens": want.prompt_tokens,
                "output_tokens": want.output_tokens,
            },
        )

    def _is_over(self, due_s: float) -> bool:
        duration_s = self._order.segment.duration_s
        return duration_s is not None and due_s - self._begins_s > duration_s


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
