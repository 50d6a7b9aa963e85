"""The figures of the lanes, on a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from ultrafast import Engine
from ultrafast.engine.meter import Meter, Rate
from ultrafast.engine.status import LaneStatus, ModelStatus
from ultrafast.engine.tiers import DEFAULT_TIERS, TIERS
from ultrafast.types import FinishReason, GenerateRequest, SamplingParams, Timings, Usage


@dataclass
class Request:
    """One request as the engine would keep it."""

    tier: str = "default"
    asked: str | None = None
    usage: Usage = field(default_factory=lambda: Usage(10, 0))
    timings: Timings = field(default_factory=Timings)

    @property
    def request(self) -> GenerateRequest:
        return GenerateRequest([1] * self.usage.prompt_tokens, SamplingParams(), self.asked or self.tier, id="req_1")


def status(meter: Meter, *live: Request, now: float) -> ModelStatus:
    return meter.status(
        "model",
        [request for request in live if request.timings.started],
        [request for request in live if not request.timings.started],
        blocks=100,
        free_blocks=60,
        cached_blocks=30,
        block_tokens=64,
        bytes_per_block=1024,
        now=now,
    )


def lane(meter: Meter, *live: Request, tier: str = "default", now: float) -> LaneStatus:
    (found,) = [lane for lane in status(meter, *live, now=now).lanes if lane.tier == tier]
    return found


def finish(
    meter: Meter, at: float, *, tokens: int, decode_s: float, ttft_s: float = 0.5, tier: str = "default"
) -> None:
    first = at - decode_s
    request = Request(tier, usage=Usage(10, tokens), timings=Timings(first - ttft_s, first - 0.1, first, at))
    meter.finished(request, FinishReason.LENGTH, at)


def test_an_unused_meter_has_every_lane_and_no_figure() -> None:
    found = status(Meter(DEFAULT_TIERS), now=1e6)
    assert [lane.tier for lane in found.lanes] == list(TIERS)
    assert found.share == DEFAULT_TIERS.share
    for lane in found.lanes:
        policy = DEFAULT_TIERS.policies[lane.tier]
        assert (lane.slots, lane.queue, lane.overflow) == (policy.slots, policy.queue, policy.overflow)
        assert (lane.speculation, lane.price) == (policy.speculation, policy.price)
        assert (lane.running, lane.queued, lane.served, lane.refused, lane.downgraded, lane.cancelled) == (0,) * 6
        assert lane.tokens_per_s == 0
        assert lane.tokens_per_s_per_request is lane.ttft_ms is lane.acceptance is None


@pytest.mark.parametrize("start", [0.0, 3.1, 12_345.6])
def test_a_steady_rate_is_found_and_forgotten(start: float) -> None:
    rate = Rate()
    now = start
    for _ in range(4000):  # 20 s of 5 tokens every 5 ms
        now += 0.005
        rate.add(5, now)
    assert rate.per_s(now) == pytest.approx(1000, rel=0.01)
    assert rate.per_s(now + 5) == pytest.approx(500, rel=0.05)
    assert rate.per_s(now + 10.5) == 0
    assert rate.per_s(now + 1e6) == 0


def test_a_rate_begins_with_what_the_last_ten_seconds_brought() -> None:
    rate = Rate()
    rate.add(100, 1000.0)
    assert rate.per_s(1000.0) == 10
    assert rate.per_s(1009.99) == pytest.approx(10, rel=0.03)
    rate.add(50, 1020.0)  # after a pause longer than the ring
    assert rate.per_s(1020.0) == 5


def test_a_rate_read_by_a_clock_that_lags_counts_nothing_twice() -> None:
    rate = Rate()
    for second in range(11):
        rate.add(10, 100.0 + second)
    assert rate.per_s(109.0) == pytest.approx(10, rel=0.05)


def test_tiers_are_counted_apart() -> None:
    meter = Meter(DEFAULT_TIERS)
    meter.tokens("ultrafast", 100, 50.0)
    meter.tokens("flex", 20, 50.0)
    assert [lane.tokens_per_s for lane in status(meter, now=50.0).lanes] == [10, 0, 0, 2]


def test_speed_is_the_median_of_the_last_minute() -> None:
    meter = Meter(DEFAULT_TIERS)
    finish(meter, 100.0, tokens=11, decode_s=1.0, ttft_s=0.010)  # 10 tokens/s
    finish(meter, 130.0, tokens=101, decode_s=1.0, ttft_s=0.020)
    finish(meter, 131.0, tokens=201, decode_s=1.0, ttft_s=0.090)
    now = lane(meter, now=131.0)
    assert (now.tokens_per_s_per_request, now.ttft_ms, now.served) == (100, 20, 3)
    later = lane(meter, now=161.0)  # the first is forgotten
    assert (later.tokens_per_s_per_request, later.ttft_ms, later.served) == (150, 55, 3)
    idle = lane(meter, now=300.0)
    assert (idle.tokens_per_s_per_request, idle.ttft_ms, idle.served) == (None, None, 3)


def test_a_request_that_still_runs_has_a_speed() -> None:
    running = Request(usage=Usage(10, 501), timings=Timings(arrived=1.0, started=2.0, first_token=3.0))
    found = lane(Meter(DEFAULT_TIERS), running, now=203.0)
    assert (found.tokens_per_s_per_request, found.ttft_ms, found.running) == (2.5, 2000, 1)


def test_a_request_too_short_for_a_speed_has_none() -> None:
    meter = Meter(DEFAULT_TIERS)
    finish(meter, 10.0, tokens=8, decode_s=0.001, ttft_s=0.03)
    finish(meter, 10.0, tokens=1, decode_s=0.5, ttft_s=0.03)
    found = lane(meter, now=10.0)
    assert (found.tokens_per_s_per_request, found.ttft_ms) == (None, 30)


def test_memory_is_bounded() -> None:
    meter = Meter(DEFAULT_TIERS)
    for number in range(5000):
        finish(meter, 10.0 + number / 1000, tokens=number + 2, decode_s=1.0)
    assert lane(meter, now=15.0).served == 5000
    assert lane(meter, now=15.0).tokens_per_s_per_request == pytest.approx(5000 - 256, abs=2)  # of the last 512


def test_ways_to_end() -> None:
    meter = Meter(DEFAULT_TIERS)
    meter.finished(Request(timings=Timings(1.0)), FinishReason.CANCELLED, 2.0)  # in the queue
    meter.finished(Request(timings=Timings(1.0, 1.0, 1.5)), FinishReason.CANCELLED, 2.0)
    meter.finished(Request(timings=Timings(1.0, 1.0, 1.5)), FinishReason.STOP, 2.0)
    meter.cancelled("default")
    meter.refused("ultrafast")
    meter.refused("ultrafast", 2)
    meter.downgraded("fast")
    ultrafast, fast, default, _ = status(meter, now=2.0).lanes
    assert (default.served, default.cancelled) == (1, 1)
    assert (ultrafast.refused, fast.downgraded) == (3, 1)
    assert (fast.refused, ultrafast.downgraded, default.refused) == (0, 0, 0)


def test_drafts_and_cached_tokens_of_ended_and_running_requests_add_up() -> None:
    meter = Meter(DEFAULT_TIERS)
    ended = Request("ultrafast", usage=Usage(100, 9, 64, 6, 4), timings=Timings(1.0, 1.0, 1.1))
    meter.finished(ended, FinishReason.STOP, 2.0)
    runs = Request("ultrafast", usage=Usage(50, 9, 0, 0, 10), timings=Timings(1.0, 1.0, 1.1))
    waits = Request("default", usage=Usage(1000, 0), timings=Timings(1.0))
    found = status(meter, runs, waits, now=2.0)
    assert found.lanes[0].acceptance == 0.3
    assert found.lanes[2].acceptance is None
    assert (found.cache.prompt_tokens, found.cache.cached_tokens) == (150, 64)
    assert (found.cache.blocks, found.cache.free_blocks, found.cache.cached_blocks) == (100, 60, 30)


def test_a_request_has_one_state_at_a_time() -> None:
    waits = Request(timings=Timings(arrived=1.0))
    begins = Request("fast", timings=Timings(1.0, 2.0))
    runs = Request("default", "fast", Usage(10, 21, 4, 3, 1), Timings(1.0, 2.0, 3.0))
    found = status(Meter(DEFAULT_TIERS), waits, begins, runs, now=5.0)
    assert [request.state for request in found.requests] == ["prefill", "decode", "queued"]
    assert [(lane.running, lane.queued) for lane in found.lanes] == [(0, 0), (1, 0), (1, 1), (0, 0)]
    last = found.requests[1]
    assert (last.id, last.tier, last.asked) == ("req_1", "default", "fast")
    assert (last.prompt_tokens, last.output_tokens, last.cached_tokens) == (10, 21, 4)
    assert (last.tokens_per_s, last.acceptance, last.age_s) == (10, 0.75, 4)
    assert found.requests[0].tokens_per_s is found.requests[2].tokens_per_s is None


def test_a_preempted_request_is_queued_with_what_it_has() -> None:
    preempted = Request("flex", usage=Usage(10, 21), timings=Timings(1.0, 2.0, 3.0))
    found = Meter(DEFAULT_TIERS).status(
        "model", [], [preempted], blocks=1, free_blocks=1, cached_blocks=0, block_tokens=64, bytes_per_block=1, now=5.0
    )
    assert (found.lanes[3].running, found.lanes[3].queued) == (0, 1)
    assert (found.requests[0].state, found.requests[0].output_tokens) == ("queued", 21)
    assert found.cache.prompt_tokens == 10


def test_an_engine_at_work_tells_of_it(engine: Engine) -> None:
    before = engine.snapshot()
    request = GenerateRequest([5] * 20, SamplingParams(max_tokens=30, ignore_eos=True), "ultrafast", id="mine")
    sequence = engine.add(request)
    assert [r.state for r in engine.snapshot().requests] == ["queued"]
    while not sequence.num_output:
        engine.step()
    amid = engine.snapshot()
    (running,) = amid.requests
    assert (running.id, running.tier, running.state, running.prompt_tokens) == ("mine", "ultrafast", "decode", 20)
    assert running.output_tokens == sequence.num_output
    assert amid.lanes[0].running == 1
    assert amid.cache.free_blocks < amid.cache.blocks
    while sequence.finish_reason is None:
        engine.step()
    after = engine.snapshot()
    assert after.requests == []
    assert after.lanes[0].served == before.lanes[0].served + 1
    assert after.cache.prompt_tokens == before.cache.prompt_tokens + 20
    assert after.lanes[0].tokens_per_s > 0
    assert after.cache.free_blocks + after.cache.cached_blocks == after.cache.blocks
