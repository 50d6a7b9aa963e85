"""`verify` over simulated endpoints whose truth is known; benchmarks/verify_power.py does it hundreds of times."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from support.simulated_model import Line, SimulatedModel, arms_of
from support.verifying import SPEED_ONLY, verdicts, verified
from ultrafast.bench.client.call import Ask, Call, Outcome
from ultrafast.bench.verify import report
from ultrafast.bench.verify.arms import Arm, Arms
from ultrafast.bench.verify.ladder import Plan, climb
from ultrafast.bench.verify.prompts import prompts
from ultrafast.bench.verify.verdict import Level, Verdict, overall
from ultrafast.errors import ServerError

PASS, FAIL, UNDERPOWERED, SKIPPED = Verdict

DEFAULT = Line(idle=60, loaded=15)
FAST = Line(idle=60, loaded=55)
TIERS: dict[str, Any] = {
    "first_tier": "default",
    "first_echo": "default",
    "second_tier": "ultrafast",
    "second_echo": "ultrafast",
    "first_line": DEFAULT,
    "second_line": FAST,
}


@pytest.mark.parametrize("sharpness", [1.0, 3.0])
def test_the_same_model_passes(sharpness: float) -> None:
    found = [overall([*verified(seed, sharpness=sharpness).values()]) for seed in (1, 2)]
    assert FAIL not in found
    assert PASS in found


@pytest.mark.parametrize(
    "difference",
    [
        {"second_temperature": 1.15},
        {"second_temperature": 0.87, "sharpness": 3.0},
        {"second_temperature": 1.2, "script": "абвгдежзиклмнопрст"},
    ],
    ids=str,
)
def test_another_temperature_is_found_by_samples_alone(difference: dict[str, Any]) -> None:
    levels = verified(3, **difference)
    assert levels["greedy"].verdict is PASS
    assert levels["samples"].verdict is FAIL
    assert levels["behaviour"].verdict is levels["answers"].verdict is SKIPPED


@pytest.mark.parametrize("chances", [True, False])
@pytest.mark.parametrize(("weights", "share"), [("q4_0", 1.0), ("q4_0", 0.3), ("q5_0", 1.0)])
def test_fewer_bits_are_found_by_greedy_tokens(weights: str, share: float, chances: bool) -> None:
    levels = verified(4, second_weights=weights, second_share=share, chances=chances)
    assert levels["greedy"].verdict is FAIL
    assert levels["logprobs"].verdict is (FAIL if chances else SKIPPED)
    assert levels["samples"].verdict is SKIPPED
    if chances:
        assert "no tie" in levels["greedy"].words


def test_fewer_bits_are_found_by_samples_as_well() -> None:
    levels = verified(5, second_weights="q4_0", plan={"greedy_prompts": []})
    assert levels["samples"].verdict is FAIL


def test_ties_that_other_kernels_turn_are_no_difference() -> None:
    level = verified(6, second_own_noise=0.03, plan={"sample_prompts": []})["greedy"]
    assert level.verdict in (PASS, UNDERPOWERED)
    assert level.figures["ties"] > 0
    assert not level.figures["real"]


def test_an_endpoint_that_disagrees_with_itself_is_not_called_different() -> None:
    level = verified(7, noise=0.3, plan={"sample_prompts": []})["greedy"]
    assert level.figures["equal_to_itself"] < 0.5
    assert level.verdict is not FAIL


@pytest.mark.parametrize(
    ("difference", "level"),
    [
        ({"second_forgotten_calls": 0.15}, "behaviour"),
        ({"second_broken_calls": 0.25}, "behaviour"),
        ({"second_lapses": 0.15}, "answers"),
    ],
)
def test_worse_behaviour_is_found_where_texts_are_the_same(difference: dict[str, Any], level: str) -> None:
    levels = verified(8, plan={"sample_prompts": []}, **difference)
    assert levels[level].verdict is FAIL


def test_few_questions_pass_nobody() -> None:
    levels = verified(9, plan={"sample_prompts": [], "tool_requests": [], "greedy_prompts": prompts(5)})
    assert levels["greedy"].verdict is UNDERPOWERED
    few = verified(9, plan={"sample_prompts": [], "greedy_prompts": [], "questions": [], "samples": 2})
    assert few["answers"].verdict is SKIPPED


def tier(seed: int, *, load: int = 4, promised: float | None = None, pairs: int = 60, **changes: Any) -> Level:
    plan = {**SPEED_ONLY, "load": load, "promised": promised, "speed_pairs": pairs}
    return verified(seed, plan=plan, **(TIERS | changes))["tier"]


def test_an_honest_tier_passes() -> None:
    assert [tier(seed).verdict for seed in range(3)] == [PASS] * 3
    assert tier(4, chunk_tokens=7).verdict is PASS


def test_a_silently_downgraded_tier_is_found() -> None:
    levels = [tier(seed, second_line=DEFAULT) for seed in range(3)]
    assert [level.verdict for level in levels] == [FAIL] * 3
    assert "Silently downgraded" in levels[0].words
    assert tier(4, second_line=DEFAULT, chunk_tokens=7).verdict is FAIL


def test_a_tier_that_is_downgraded_in_part_is_never_passed() -> None:
    levels = [tier(seed, second_slow=DEFAULT, second_slow_share=0.7, pairs=100) for seed in range(5, 12)]
    assert all(level.verdict is not PASS for level in levels)
    found = [level for level in levels if level.verdict is FAIL]
    assert found
    assert all("in part" in level.words for level in found)


@pytest.mark.parametrize("load", [0, 4])
def test_on_an_engine_that_is_not_slowed_down_nothing_can_be_told(load: int) -> None:
    level = tier(6, load=load, first_line=FAST, second_line=FAST)
    assert level.verdict is UNDERPOWERED
    assert "Cannot tell" in level.words


def test_a_promise_is_held_against_the_tier_without_any_load() -> None:
    idle = {"first_line": Line(60, 60), "load": 0, "promised": 2.5}
    assert tier(7, second_line=Line(200, 200), **idle).verdict is PASS
    assert tier(7, second_line=Line(60, 60), **idle).verdict is FAIL


def test_a_tier_that_only_begins_sooner_is_honest() -> None:
    first, second = Line(60, 20, start_s=0.5), Line(20, 20, start_s=0.05)
    assert tier(8, first_line=first, second_line=second).verdict is PASS


def test_echoes_that_are_missing_or_openly_other() -> None:
    silent = tier(9, second_echo=None, second_line=DEFAULT)
    assert (silent.verdict, "do not say" in silent.words) == (UNDERPOWERED, True)
    openly = tier(9, second_echo="default", second_line=DEFAULT)
    assert (openly.verdict, openly.words.startswith("Openly downgraded")) == (FAIL, True)


class Failing(SimulatedModel):
    """Refuses some of its calls."""

    every = 1

    async def call(self, ask: Ask, *, id: str, intended_s: float | None = None) -> Call:
        call = await super().call(ask, id=id, intended_s=intended_s)
        self.turn = getattr(self, "turn", 0) + 1
        return replace(call, outcome=Outcome.ERROR, error="no", text="") if self.turn % self.every == 0 else call


def climbed(first: SimulatedModel, second: SimulatedModel) -> list[Level]:
    asked = prompts(20)
    plan = Plan(asked, asked, [], [], [], samples=8)
    return asyncio.run(climb(Arms(Arm("a", first), Arm("b", second)), plan))


def test_an_arm_that_never_answers_is_an_error() -> None:
    first, _ = arms_of()
    with pytest.raises(ServerError, match="b: 2 of 2 calls failed"):
        climbed(first, Failing())


def test_calls_that_fail_at_times_are_left_out_and_told() -> None:
    first, _ = arms_of()
    second = Failing(seed=1)
    second.every = 9
    levels = {level.name: level for level in climbed(first, second)}
    assert "calls failed, the first with: error: no" in levels["greedy"].words
    assert FAIL not in verdicts(levels).values()


def test_another_model_name_is_a_difference() -> None:
    class Renamed(SimulatedModel):
        async def call(self, ask: Ask, *, id: str, intended_s: float | None = None) -> Call:
            return replace(await super().call(ask, id=id, intended_s=intended_s), model_served="other")

    levels = climbed(SimulatedModel(), Renamed(seed=1))
    assert levels[0].verdict is FAIL
    assert "simulated and other" in levels[0].words
    assert levels[1].verdict is PASS  # and the ladder goes on: names say little


def test_reports_say_all_of_it() -> None:
    levels = [*verified(10, second_weights="q4_0").values()]
    told = report.text(levels, "default and ultrafast")
    assert told.startswith("FAIL: default and ultrafast: a difference is shown by greedy tokens")
    assert all(level.title in told for level in levels)
    page = report.page(levels, "default and ultrafast", {"seed": "10"}).html()
    assert all(level.title in page for level in levels)
