"""What the client reports is the truth, as the reference endpoint tells it of itself, within 2 %."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from support.schedule_server import ReferenceEndpoint, reference_endpoint
from support.schedules import Schedule, Step, drawn
from ultrafast.bench.client.call import Ask, Call
from ultrafast.bench.client.client import Client
from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.endpoint import Api, Endpoint

FIGURES = ("ttft_s", "output_speed", "e2e_s", "longest_gap_s")
APART_S = 0.008  # between two starts: 64 at once would measure how fast one client writes 64 requests
WARM = Schedule(steps=[Step(0.2)])


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceEndpoint]:
    with reference_endpoint() as endpoint:
        yield endpoint


def schedule(seed: int) -> Schedule:
    """A prompt takes a while; 1 to 8 tokens an event then, and in some streams a stall."""
    first, *rest = drawn(seed, events=7).steps
    stall = [Step(0.3, 1)] if seed % 3 == 0 else []
    return Schedule(steps=[Step(0.3 + first.delay_s, first.tokens), *rest, *stall])


async def streams(url: str, api: Api, number: int) -> list[Call]:
    """So many calls in flight together, on connections that are open already."""
    clock = RunClock()
    async with AsyncExitStack() as stack:
        endpoint = Endpoint(url, "reference", api)
        clients = [
            await stack.enter_async_context(Client(endpoint, clock)) for _ in range(number if api == "socket" else 1)
        ]

        async def one(index: int, ask: Ask, start_s: float) -> Call:
            await asyncio.sleep(start_s - clock.now())
            return await clients[index % len(clients)].call(ask, id=str(index), intended_s=start_s)

        await asyncio.gather(*(one(index, Ask("", extra=WARM.asked()), 0.0) for index in range(number)))
        start_s = clock.now() + 0.05
        asks = [Ask("Hi", extra=schedule(seed).asked()) for seed in range(number)]
        starts = [start_s + index * APART_S for index in range(number)]
        return await asyncio.gather(*map(one, range(number), asks, starts))


@pytest.mark.parametrize(
    ("api", "number"),
    [("chat", 1), ("chat", 16), ("chat", 64), ("completions", 16), ("responses", 16), ("socket", 16)],
)
def test_figures_are_true(reference: ReferenceEndpoint, api: Api, number: int) -> None:
    calls = asyncio.run(streams(reference.url, api, number))
    assert [call.error for call in calls if not call.is_ok] == []
    truths = {truth.id: truth for truth in reference.truths()}
    assert sum(call.output_tokens or 0 for call in calls) == sum(sum(truths[c.response_id].tokens) for c in calls)
    for figure in FIGURES:
        told = statistics.median(getattr(call, figure) for call in calls)
        true = statistics.median(getattr(truths[call.response_id], figure) for call in calls)
        assert told == pytest.approx(true, rel=0.02), figure
