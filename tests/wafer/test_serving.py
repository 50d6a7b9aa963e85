"""The simulation of many users: theory where there is one, and what must hold whatever comes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ultrafast.errors import ConfigError
from ultrafast.wafer.serving.simulate import Service, Tier, pipeline, simulate
from ultrafast.wafer.serving.summary import Level, fewest_seats, summarize
from ultrafast.wafer.serving.workload import Lengths, Workload, from_trace, poisson

ONE = Lengths(1)


def exponential(rate: float, count: int, mean: float, *, seed: int) -> Workload:
    """Poisson arrivals of requests whose service takes exponential times, in thousandths of a mean."""
    workload = poisson(rate, count, ONE, ONE, [1], seed=seed)
    lengths = np.random.default_rng(seed + 1).exponential(1000 * mean, count)
    return Workload(workload.arrivals_s, workload.prompts, np.maximum(1, np.rint(lengths)).astype(int), workload.tiers)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_seat_and_equal_requests_are_m_d_1(load: float) -> None:
    """Mean waiting time of M/D/1: load * service / (2 (1 - load)) (Pollaczek and Khinchine)."""
    workload = poisson(load, 200_000, ONE, Lengths(100), [1], seed=3)
    result = simulate(workload, Service(pipeline(0.01, 0.0), [Tier("only", 1)]))
    waited = (result.seated_s - workload.arrivals_s).mean()
    assert waited == pytest.approx(load / (2 * (1 - load)), rel=0.02)


@pytest.mark.parametrize(("seats", "load"), [(1, 0.5), (3, 0.7), (8, 0.8)])
def test_seats_and_exponential_requests_are_m_m_c(seats: int, load: float) -> None:
    """Mean waiting time of M/M/c, from Erlang's C formula."""
    workload = exponential(load * seats, 200_000, 1.0, seed=11)
    result = simulate(workload, Service(pipeline(0.001, 0.0), [Tier("only", seats)]))
    offered = load * seats
    tail = offered**seats / math.factorial(seats) / (1 - load)
    must_wait = tail / (sum(offered**k / math.factorial(k) for k in range(seats)) + tail)
    waited = (result.seated_s - workload.arrivals_s).mean()
    assert waited == pytest.approx(must_wait / (seats * (1 - load)), rel=0.02)


def test_a_pipeline_that_is_shared_is_processor_sharing() -> None:
    """Mean time in M/G/1 with processor sharing: service / (1 - load), whatever the lengths (Kleinrock)."""
    workload = poisson(0.5, 100_000, ONE, Lengths(1000, 0.5), [1], seed=5)
    mean = float(workload.outputs.mean())
    result = simulate(workload, Service(pipeline(1 / mean, 1 / mean), [Tier("only", 10_000)]))
    load = 0.5
    assert (result.done_s - workload.arrivals_s).mean() == pytest.approx(1 / (1 - load), rel=0.03)


def test_up_to_as_many_as_there_are_stages_nobody_notices_the_others() -> None:
    count, stages = 8, 8
    workload = Workload(np.zeros(count), np.ones(count, int), np.full(count, 50), np.zeros(count, int))
    result = simulate(workload, Service(pipeline(0.08, 0.08 / stages), [Tier("only", count)]))
    assert result.speed == pytest.approx(np.full(count, 1 / 0.08))
    twice = simulate(
        Workload(np.zeros(16), np.ones(16, int), np.full(16, 50), np.zeros(16, int)),
        Service(pipeline(0.08, 0.08 / stages), [Tier("only", 16)]),
    )
    assert twice.speed == pytest.approx(np.full(16, 0.5 / 0.08))


tiers = st.builds(
    Tier,
    name=st.just("any"),
    seats=st.integers(0, 4),
    queue=st.integers(0, 5),
    overflow=st.sampled_from(["queue", "reject", "next"]),
)


@given(
    policies=st.lists(tiers, min_size=1, max_size=3),
    seed=st.integers(0, 1000),
    rate=st.floats(0.1, 50),
    stage_s=st.sampled_from([0.0, 1e-4, 0.003, 0.02]),
    servers=st.integers(1, 3),
)
@settings(deadline=None, max_examples=40)
def test_nothing_is_lost_and_nothing_comes_from_nowhere(
    policies: list[Tier], seed: int, rate: float, stage_s: float, servers: int
) -> None:
    workload = poisson(rate, 200, Lengths(30, 1.0), Lengths(20, 1.0), [1] * len(policies), seed=seed)
    result = simulate(workload, Service(pipeline(0.01, stage_s), policies, servers, lambda tokens: tokens * 1e-3))
    served = result.served >= 0
    # Every request is served to its end, or turned away by a tier that has no room.
    assert np.isnan(result.done_s[~served]).all()
    assert not np.isnan(result.done_s[served]).any()
    if all(policy.seats and policy.queue >= 200 and policy.overflow == "queue" for policy in policies):
        assert served.all()
    # Nobody is early, and nobody is faster than the pipeline.
    assert (result.seated_s[served] >= workload.arrivals_s[served]).all()
    prompt_s = workload.prompts[served] * 1e-3
    assert (result.decoding_s[served] >= result.seated_s[served] + prompt_s - 1e-9).all()
    assert (result.speed[served] <= 1 / 0.01 + 1e-6).all()
    for index, policy in enumerate(policies):
        mine = result.served == index
        assert _most_at_once(result.seated_s[mine], result.done_s[mine]) <= policy.seats
        own = mine & (workload.tiers == index)
        assert (np.diff(result.seated_s[own]) >= 0).all()  # first come, first seated
    prompts = _most_at_once((result.decoding_s - workload.prompts * 1e-3)[served] + 1e-9, result.decoding_s[served])
    assert prompts <= servers
    if stage_s:
        lasted = np.nanmax(result.done_s) - workload.arrivals_s[0] if served.any() else 0
        assert workload.outputs[served].sum() <= lasted / stage_s + 1e-6


def _most_at_once(begins: np.ndarray, ends: np.ndarray) -> int:  # type: ignore[type-arg]
    changes = sorted([(time, -1) for time in ends] + [(time, 1) for time in begins])
    level = most = 0
    for _, change in changes:
        level += change
        most = max(most, level)
    return most


def test_littles_law() -> None:
    workload = poisson(20, 50_000, Lengths(100, 0.5), Lengths(100, 1.0), [1], seed=2)
    result = simulate(workload, Service(pipeline(0.002, 0.0003), [Tier("only", 64)], 2, lambda tokens: tokens * 1e-4))
    times = result.done_s - workload.arrivals_s
    changes = np.concatenate([workload.arrivals_s, result.done_s])
    order = np.argsort(changes)
    levels = np.cumsum(np.where(order < len(workload), 1, -1))
    area = float((levels[:-1] * np.diff(changes[order])).sum())
    assert area == pytest.approx(times.sum(), rel=1e-9)


def test_the_scarce_tier_passes_on_what_it_has_no_seat_for() -> None:
    workload = poisson(100, 5_000, ONE, Lengths(100), [1, 1], seed=9)
    tiers = [Tier("ultrafast", 2, overflow="next"), Tier("default", 1000)]
    result = simulate(workload, Service(pipeline(0.01, 0.0), tiers))
    asked = workload.tiers == 0
    assert (result.served[asked] == 1).any()
    assert (result.served[~asked] == 1).all()


def test_impossible_services_are_refused() -> None:
    for build in (
        lambda: Service(pipeline(0.0, 0.0), [Tier("a", 1)]),
        lambda: Service(pipeline(1.0, -1.0), [Tier("a", 1)]),
        lambda: Service(pipeline(1.0, 0.0), []),
        lambda: Service(pipeline(1.0, 0.0), [Tier("a", 1)], 0),
        lambda: Tier("a", -1),
        lambda: poisson(0, 10, ONE, ONE, [1], seed=0),
        lambda: poisson(1, 0, ONE, ONE, [1], seed=0),
        lambda: poisson(1, 10, ONE, ONE, [0], seed=0),
    ):
        with pytest.raises(ConfigError):
            build()


AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:47.6805900,396,109\n"
)
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
BURST += "45,ChatGPT,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,Conversation log\n"
MOONCAKE = '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
MOONCAKE += '{"timestamp": 3000, "input_length": 7322, "output_length": 490, "hash_ids": [0]}\n'


@pytest.mark.parametrize(
    ("name", "text", "arrivals", "outputs"),
    [
        ("a.csv", AZURE, [0, 1], [44, 109]),
        ("b.csv", BURST, [0, 113], [18, 276]),
        ("m.jsonl", MOONCAKE, [0, 3], [500, 490]),
    ],
)
def test_traces_are_read(tmp_path: Path, name: str, text: str, arrivals: list[float], outputs: list[int]) -> None:
    path = tmp_path / name
    path.write_text(text)
    workload = from_trace(path, [1], scale=2.0, seed=0)
    assert workload.arrivals_s.tolist() == pytest.approx([2 * time for time in arrivals])
    assert workload.outputs.tolist() == outputs


def test_a_summary_counts_every_request() -> None:
    workload = poisson(100, 5_000, ONE, Lengths(100), [1, 2], seed=9)
    tiers = [Tier("ultrafast", 2, overflow="next"), Tier("default", 60, queue=5)]
    result = simulate(workload, Service(pipeline(0.01, 0.0), tiers))
    rows = summarize(result, Level(ttft_s=0.5, speed=99))
    assert sum(row.asked for row in rows) == 5_000
    assert all(row.asked == row.served + row.moved + row.refused for row in rows)
    assert rows[0].moved > 0
    assert rows[1].refused > 0
    assert rows[0].ttft_s == sorted(rows[0].ttft_s)
    assert rows[0].kept == pytest.approx(rows[0].served / rows[0].asked)  # no one waits for a seat of `ultrafast`


def test_the_fewest_seats_for_a_level() -> None:
    workload = poisson(10, 3_000, ONE, Lengths(100), [1], seed=1)
    service = Service(pipeline(0.01, 0.0), [Tier("only", 1, overflow="reject")])
    level = Level(share=0.9)
    seats = fewest_seats(workload, service, 0, level, most=100)
    assert seats is not None
    # Erlang's B formula: of an offered load of 10, this many lines turn away no more than a tenth.
    blocked = 1.0
    for lines in range(1, seats + 1):
        blocked = 10 * blocked / (lines + 10 * blocked)
    assert blocked == pytest.approx(0.1, abs=0.035)
    assert fewest_seats(workload, service, 0, Level(speed=200), most=64) is None
    with pytest.raises(ConfigError, match="service level"):
        Level(share=0)
