"""From pairs to a recommendation: times, money and words, from runs made up by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ultrafast.bench.ab import report
from ultrafast.bench.ab.analysis import arm, money, time_split
from ultrafast.bench.ab.arms import Wanted, changed, shared_prices
from ultrafast.bench.ab.run.records import Arm, Pair, Plan, Run
from ultrafast.bench.ab.run.setup import Setup, arm_setup, arms_of
from ultrafast.bench.client.call import Call, Outcome
from ultrafast.bench.client.endpoint import Endpoint, Price
from ultrafast.errors import ConfigError

TIERS = {"A": "default", "B": "ultrafast"}
PRICES: dict[str | None, Price] = {"default": Price(1.0, 4.0), "ultrafast": Price(6.0, 24.0)}


def call(start: float, first: float | None, done: float, *, tokens: int = 100, **fields: object) -> Call:
    made = Call("1", {}, "default", start, start, first, first, first, done, done, output_tokens=tokens)
    made.prompt_tokens = 50
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def arms() -> dict[str, Arm]:
    return {n: Arm(n, Endpoint("http://127.0.0.1:9/v1", "m", tier=t), prices=PRICES) for n, t in TIERS.items()}


def setup_of(tasks: int, *, unit: str = "$") -> Setup:
    return Setup(
        workflow="w", arms={n: arm_setup(of) for n, of in arms().items()}, tasks=tasks, tasks_digest="", check=None,
        aa_share=0.0, warmups=0, seed=1, timeout_s=9, concurrency=1, margin=0.02, unit=unit,
    )  # fmt: skip


def run(name: str, wall_s: float, *, success: bool = True, served: str | None = None, **fields: object) -> Run:
    """Half of the time of a run is output."""
    made = call(1.0, 1 + wall_s / 4, 1 + wall_s * 3 / 4, tier_asked=TIERS[name], tier_served=served or TIERS[name])
    return Run(name, 1.0, wall_s, "done", success, calls=[made], **fields)  # type: ignore[arg-type]


def pairs_of(ratios: list[float], *, wrong_b: int = 0, kind: str = "ab") -> list[Pair]:
    """B takes 10 seconds over the ratio, and is wrong in the first so many."""
    made = []
    for number, ratio in enumerate(ratios):
        a, b = run("A", 10.0), run("B" if kind == "ab" else "A", 10.0 / ratio, success=number >= wrong_b)
        order = ("AB" if kind == "ab" else "Aa") if number % 2 else ("BA" if kind == "ab" else "aA")
        plan = Plan(number, kind, f"t{number}", order, 1)  # type: ignore[arg-type]
        made.append(Pair(plan, "", (b, a) if order[0] in "Ba" else (a, b)))
    return made


def made_of(pairs: list[Pair], *, planned: int | None = None, hour: float | None = None) -> report.Report:
    return report.make(setup_of(planned or len(pairs)), pairs, arms(), hour=hour)


def spread(n: int, centre: float, seed: int = 0) -> list[float]:
    return [float(ratio) for ratio in np.exp(np.random.default_rng(seed).normal(math.log(centre), 0.2, n))]


def test_where_the_time_went() -> None:
    calls = [
        call(2.0, 3.0, 5.0),
        call(4.0, 4.5, 6.0),  # at the same time as the one before
        call(7.0, None, 8.0, outcome=Outcome.REFUSED),
        call(8.0, None, 9.5),  # not streamed
        call(9.8, 9.9, 30.0),  # the run was stopped before
    ]
    part = time_split.split(Run("A", 1.0, 10.0, "timeout", False, calls=calls))
    assert (part.output, part.waiting, part.failed) == pytest.approx((3 + 1.5 + 1.1, 1.0 + 0.1, 1.0))
    assert (part.between, part.ends) == pytest.approx((1.0 + 0.3, 1.0))
    assert part.total == pytest.approx(10.0)
    assert time_split.split(Run("A", 0.0, 4.0, "done", True)).ends == 4.0


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20), st.floats(0, 20), st.booleans()), max_size=6))
def test_all_time_is_accounted_for(times: list[tuple[float, float, float, bool]]) -> None:
    calls = []
    for *at, is_ok in times:
        start, first, done = sorted(at)
        calls.append(call(start, first, done, outcome=Outcome.OK if is_ok else Outcome.BROKEN))
    assert time_split.split(Run("A", 5.0, 10.0, "done", True, calls=calls)).total == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("share", "ratio", "speedup"),
    [(0.30, 2.5, 1.22), (0.50, 5, 1.67), (0.70, 12.5, 2.81), (0.95, 12.5, 7.94), (0.95, math.inf, 20.0)],
)
def test_amdahl(share: float, ratio: float, speedup: float) -> None:
    assert time_split.amdahl(share, ratio) == pytest.approx(speedup, abs=0.005)


@pytest.mark.parametrize(
    ("cost", "task_s", "share", "saved_s", "extra", "hour"),
    [
        (0.02, 60, 0.9, 50, 0.10, 7), (0.10, 300, 0.8, 221, 0.50, 8), (0.50, 600, 0.8, 442, 2.50, 20),
        (2.00, 1800, 0.7, 1159, 10.00, 31), (0.50, 600, 0.3, 166, 2.50, 54),
    ],
)  # fmt: skip
def test_break_even_at_six_times_the_price(
    cost: float, task_s: float, share: float, saved_s: float, extra: float, hour: float
) -> None:
    saved = money.time_saved(task_s, share, 12.5)
    assert saved == pytest.approx(saved_s, abs=0.5)
    assert money.extra_cost(6, cost) == pytest.approx(extra)
    assert money.break_even(extra, saved) == pytest.approx(hour, abs=0.5)
    # At 2.5 times the speed, the last column grows 1.53-fold.
    assert money.break_even(extra, money.time_saved(task_s, share, 2.5)) / hour == pytest.approx(1.53, abs=0.1)


def test_break_even_at_the_edges() -> None:
    assert money.break_even(-0.1, 5.0) == 0
    assert money.break_even(0.1, -5.0) == math.inf
    assert math.isnan(money.break_even(math.nan, 5.0))


def test_what_calls_cost() -> None:
    b = arms()["B"]
    whole = call(0, 1, 2, prompt_tokens=1000, cached_tokens=400, tier_asked="ultrafast")
    assert money.cost_of_call(b, whole) == pytest.approx((1000 * 6 + 100 * 24) / 1e6)
    whole.tier_served = "default"  # a fallback costs what the other tier costs
    assert money.cost_of_call(b, whole) == pytest.approx((1000 * 1 + 100 * 4) / 1e6)
    cached = Arm("B", b.endpoint, prices={None: Price(1.0, 0.0, cached_input=0.1)})
    assert money.cost_of_call(cached, whole) == pytest.approx((600 + 40) / 1e6)
    whole.output_tokens = None
    assert math.isnan(money.cost_of_call(b, whole))
    refused = call(0, None, 1, outcome=Outcome.REFUSED)
    refused.prompt_tokens = refused.output_tokens = None
    assert money.cost_of_call(b, refused) == 0
    assert math.isnan(money.cost_of_call(Arm("A", b.endpoint), call(0, 1, 2)))
    assert money.cost_per_success([1.0, 2.0], 2) == 1.5
    assert money.cost_per_success([1.0], 0) == math.inf


def test_b_is_faster_and_as_good() -> None:
    made = made_of(pairs_of(spread(200, 2.0)))
    verdict = made.verdict
    assert verdict.take == "B if"
    assert "if an hour of waiting is worth more than $" in verdict.text
    assert made.analysis.success.verdict == "PASS"
    assert made.analysis.time.finding == "faster"
    assert made.analysis.time.typical.value == pytest.approx(2.0, rel=0.05)
    # each call: 50 tokens in, 100 out; half of 10 s saved
    assert made.analysis.money.extra.value == pytest.approx((50 * 5 + 100 * 20) / 1e6)
    assert made.analysis.money.an_hour.value == pytest.approx(2250e-6 / made.analysis.money.saved_s.value * 3600)
    assert made_of(pairs_of(spread(200, 2.0)), hour=100).verdict.take == "B"
    assert made_of(pairs_of(spread(200, 2.0)), hour=0.01).verdict.take == "A"


def test_it_reads_the_same_from_the_other_side() -> None:
    slower = made_of(pairs_of(spread(60, 0.5)))
    assert (slower.verdict.take, slower.analysis.time.finding) == ("A", "slower")


def test_fewer_right_is_no_bargain() -> None:
    made = made_of(pairs_of(spread(100, 3.0), wrong_b=30))
    assert made.verdict.take == "A"
    assert "30 tasks only A, 0 only B" in made.verdict.text


def test_too_few_to_tell() -> None:
    few = made_of(pairs_of(spread(30, 2.0)))
    assert few.verdict.take == "B if"
    assert "not shown" in few.verdict.text
    assert any("takes a run of about 133 tasks" in line for line in few.verdict.sure)
    unclear = made_of(pairs_of(spread(30, 1.0)))
    assert unclear.verdict.take == "undecided"
    early = made_of(pairs_of(spread(200, 2.0)), planned=300)
    assert early.analysis.success.verdict == "UNDERPOWERED"
    assert made_of([], planned=10).verdict.take == "undecided"


def test_what_is_wrong_with_a_run_is_said() -> None:
    pairs = pairs_of(spread(12, 2.0))
    late = Run("B", 1.0, 9.0, "timeout", False)
    fallen = run("B", 5.0, served="default")
    pairs[0] = Pair(Plan(0, "ab", "t0", "AB", 1), "", (run("A", 10.0), late))
    pairs[1] = Pair(Plan(1, "ab", "t1", "AB", 1), "", (run("A", 10.0), fallen))
    made = made_of([*pairs, *pairs_of([3.0] * 8, kind="aa")])
    said = " ".join(made.verdict.cautions)
    assert "1 of 11 calls of B were served by another tier" in said
    assert "1 runs were stopped by the limit" in said
    assert "A differs from A itself" in said
    assert made.analysis.time.left_out == 1
    assert made.analysis.time.typical.n == 11
    assert made.analysis.b.wall.high == math.inf or made.analysis.b.timeouts == 1


def test_another_word_for_a_tier_is_no_fallback() -> None:
    calls = [
        call(0, 1, 2, tier_asked=asked, tier_served=served)
        for asked, served in (
            ("priority", "fast"), ("auto", "default"), (None, "default"), ("fast", None), ("priority", "default"),
        )
    ]  # fmt: skip
    assert arm.summarise(arms()["A"], [Run("A", 0.0, 3.0, "done", True, calls=calls)]).fallbacks == 1


def test_the_second_run_of_each_pair_profits() -> None:
    pairs = []
    for number in range(30):
        first, second = ("A", "B") if number % 2 else ("B", "A")
        runs = run(first, 10.0 + number % 3), run(second, 5.0)
        pairs.append(Pair(Plan(number, "ab", f"{number}", first + second, 1), "", runs))
    made = made_of(pairs)
    assert made.analysis.time.finding == "open"
    assert made.analysis.order.value == pytest.approx(0.45, abs=0.05)
    assert any("second run of a pair" in line for line in made.verdict.cautions)


def test_deadlines() -> None:
    made = made_of(pairs_of([2.0] * 10, wrong_b=4))
    by = {at: (a.value, b.value) for at, a, b in made.curve}
    assert by[5.0] == (0.0, 0.6)
    assert by[10.0] == (1.0, 0.6)


def test_the_report_is_whole(tmp_path: Path) -> None:
    pairs = [*pairs_of(spread(20, 2.0)), *pairs_of(spread(4, 1.0), kind="aa")]
    scored = [Pair(p.plan, "", (run(p.runs[0].arm, 9, outcomes={"<b>": 3.0}), p.runs[1])) for p in pairs[:1]]
    made = made_of([*scored, *pairs[1:]])
    shown = report.text(made)
    for words in ("n", "20 pairs, 1 at once", "of A's time in output", "tokens in, cached, out", "20 ultrafast"):
        assert words in shown
    html = report.page(made).html()
    assert "<svg" in html
    assert "<b>" not in html
    doc = json.loads(json.dumps(report.document(made)))
    assert doc["kind"] == "ab"
    assert doc["results"]["analysis"]["time"]["typical"]["n"] == 20
    assert arms_of(setup_of(3))["B"].prices == PRICES
    assert "units" in report.text(report.make(setup_of(20, unit="units"), pairs, arms(), hour=None))


def test_what_is_said_of_an_arm() -> None:
    wanted = changed(Wanted("u", None, "default", "KEY"), ["url=http://h/v1", "tier=", "model=m", "env.X=a=b"], "--a")
    assert wanted == Wanted("http://h/v1", "m", None, "KEY", {"X": "a=b"})
    for wrong in ("url", "speed=fast", "env.=x", ""):
        with pytest.raises(ConfigError, match="KEY=VALUE"):
            changed(wanted, [wrong], "--a")
    a, b = (
        Arm(n, Endpoint("http://h/v1", "m", tier=t), prices={None: Price(i, i)})
        for n, t, i in (("A", "x", 1), ("B", "y", 2))
    )
    priced = shared_prices(a, b)
    assert [priced[1].price_of(tier) for tier in ("x", "y", "z")] == [Price(1, 1), Price(2, 2), Price(2, 2)]
