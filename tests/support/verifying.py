"""The whole of `verify`, from asking to verdict, over simulated endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from support.simulated_model import SimulatedModel, arms_of
from ultrafast.bench.verify.answers import sums
from ultrafast.bench.verify.arms import Arm, Arms
from ultrafast.bench.verify.ladder import Plan, climb
from ultrafast.bench.verify.prompts import prompts
from ultrafast.bench.verify.tool_asks import tool_asks
from ultrafast.bench.verify.verdict import Level, Verdict


def verified(seed: int, *, plan: Mapping[str, Any] = {}, **differences: Any) -> dict[str, Level]:
    """The levels of one run by name, with the command's defaults.

    Args:
        seed: of the endpoints' luck, and of the run.
        plan: fields of `Plan` in place of the defaults.
        differences: see `arms_of`.
    """
    questions = sums(240, seed)
    known = {question.question: question.answer for question in questions}
    first, second = arms_of(seed=seed, answers=known, **differences)
    asked = prompts(40, seed)
    speed = asked if second.tier else []
    whole = replace(Plan(asked, asked, tool_asks(240, seed), questions, speed), **plan)
    return asyncio.run(_climb(first, second, whole, seed))


async def _climb(first: SimulatedModel, second: SimulatedModel, plan: Plan, seed: int) -> dict[str, Level]:
    arms = Arms(Arm("first", first, first.tier), Arm("second", second, second.tier), seed=seed)
    return {level.name: level for level in await climb(arms, plan)}


def verdicts(levels: Mapping[str, Level]) -> dict[str, Verdict]:
    return {name: level.verdict for name, level in levels.items()}


SPEED_ONLY: Mapping[str, Any] = {"greedy_prompts": [], "sample_prompts": [], "tool_requests": [], "questions": []}
"""A plan that asks about the tier alone."""
