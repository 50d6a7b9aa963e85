"""A plan as text, JSON and a page with pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ultrafast.report.page import Page
from ultrafast.wafer import catalog, outlook
from ultrafast.wafer.device import Device
from ultrafast.wafer.outlook import Reach
from ultrafast.wafer.plan import Load, Plan, Question

if TYPE_CHECKING:
    from ultrafast.wafer.outlook import Wall


@dataclass(frozen=True, slots=True)
class Answer:
    """All that a plan tells: the plan, how its target is reached if there is one, and other devices."""

    plan: Plan
    reach: Reach | None
    others: Sequence[Plan | tuple[Device, str]]


def default_others(question: Question) -> list[str]:
    """What people compare with, when they do not say: a wafer and GPUs of several generations."""
    return [name for name in ("wse-3", "h100", "h200", "b200", "mi300x") if name != question.device.name]


def catalogue() -> str:
    """The names there are."""
    lines = ["models"]
    for name, shape in catalog.models().items():
        total, active = shape.num_parameters / 1e9, shape.num_active_parameters / 1e9
        lines.append(f"  {name:20}{total:>9,.1f} billion parameters, {active:,.1f} active")
    lines.append("devices")
    lines += [f"  {name:20}{device.title}" for name, device in catalog.devices().items()]
    lines.append("  this                this machine, measured")
    return "\n".join(lines)


def text(answer: Answer) -> str:
    """For people."""
    made, question = answer.plan, answer.plan.question
    lines = [_headline(made), ""]
    lines += [f"  {name:24}{value}" for name, value in _facts(made).items()]
    lines += ["", "a token's time"]
    total = sum(made.parts.values())
    lines += [f"  {name:24}{s * 1e6:>10,.1f} µs {s / total:>5.0%}" for name, s in made.parts.items()]
    lines += ["", f"{'users':>8}{'tok/s each':>14}{'tok/s all':>14}{'J/token':>12}{'$/M tokens':>14}"]
    lines += [_load_line(load) for load in made.loads]
    if answer.reach is not None:
        lines += ["", reach_words(answer.reach, made)]
    lines += ["", f"{'the same on':28}{'devices':>8}{'tok/s':>9}{'first token':>14}{'bound by':>16}"]
    lines += [_other_line(other, question) for other in answer.others]
    lines += ["", *(f"assumed: {note}" for note in _notes(made))]
    return "\n".join(lines)


def reach_words(reach: Reach, made: Plan) -> str:
    """How the target is reached, in a sentence or two."""
    title = made.question.device.title
    if made.speed >= reach.target:
        return f"{reach.target:,.0f} tokens/s: yes, with {made.count} x {title} ({made.speed:,.0f})."
    if reach.count is not None:
        return f"{reach.target:,.0f} tokens/s: {reach.count} x {title} reach it; {made.count} give {made.speed:,.0f}."
    words = (
        f"{reach.target:,.0f} tokens/s: no number of {title} reaches it without drafts; {reach.best_count} come "
        f"nearest, with {reach.best_speed:,.0f}. {_why(made)}"
    )
    if reach.draft_steps is None:
        return f"{words} Drafts of up to 8 tokens would not do either."
    return (
        f"{words} With {made.count} and drafts of {reach.draft_steps}, each step must give {reach.tokens_per_step:.2f} "
        f"tokens: {reach.acceptance:.0%} of the drafted tokens accepted."
    )


def to_json(answer: Answer) -> str:
    """For programs."""
    body: dict[str, Any] = {"plan": _plain(answer.plan)}
    body["reach"] = None if answer.reach is None else asdict(answer.reach)
    body["others"] = [
        {"device": other[0].name, "error": other[1]} if isinstance(other, tuple) else _plain(other)
        for other in answer.others
    ]
    return json.dumps(body, indent=1)


def page(answer: Answer) -> Page:
    """With pictures."""
    from ultrafast.wafer import pictures

    made, question = answer.plan, answer.plan.question
    report = Page(f"{question.shape.name} on {question.device.title}", _facts(made))
    report.verdict(_headline(made) + ("" if answer.reach is None else " " + reach_words(answer.reach, made)))
    plans = [made, *(other for other in answer.others if isinstance(other, Plan))]
    if made.placement is not None:
        report.section("Where the layers lie").figure(
            pictures.wafers(made.placement),
            f"{made.count} wafers; numbers are layers along the token's way, E the embedding, H the output projection. "
            f"Each layer computes on {made.side} x {made.side} PEs of its rectangle.",
        )
    bars = {f"{one.count} x {one.question.device.title}": one.parts for one in plans}
    report.section("What a token's time goes to").figure(
        pictures.breakdown(bars), f"One user, half of {question.context:,} positions in the cache, without drafts."
    )
    curves = {
        f"{one.count} x {one.question.device.title}": (
            [load.total_speed for load in one.loads],
            [load.user_speed for load in one.loads],
        )
        for one in plans
    }
    report.section("Many users").figure(pictures.throughput(curves), "As many users as have room, from one on.")
    columns = ("users", "tokens/s each", "tokens/s all", "J/token", "$ a million tokens")
    report.table(columns, [_load_cells(load) for load in made.loads])
    if question.device.kind == "wafer":
        walls = outlook.memory_wall(question, made.count)
        report.section("The memory wall").figure(pictures.memory_wall(walls), _wall_words(walls, made))
    report.section("What is assumed").table(
        ("figure", "value", "kind", "source"),
        [
            (name, f"{figure.value:,.6g}", figure.origin, figure.source)
            for name, figure in question.device.figures.items()
        ],
    )
    for note in _notes(made):
        report.text(note)
    return report


def _headline(made: Plan) -> str:
    question = made.question
    drafts = (
        "" if question.speculation is None else f", drafts giving {question.speculation.tokens_per_step:.2f} a step"
    )
    return (
        f"{question.shape.name} in {question.precision.name} takes {made.count} x {question.device.title} and gives "
        f"one user {made.speed:,.0f} tokens/s{drafts}. Most of a token's time goes to: {made.bound}."
    )


def _facts(made: Plan) -> dict[str, str]:
    question = made.question
    shape, bits = question.shape, question.precision
    facts = {
        "parameters": f"{shape.num_parameters / 1e9:,.1f} billion, {shape.num_active_parameters / 1e9:,.1f} active",
        "weights": f"{bits.weight_bytes(shape) / 1e9:,.1f} GB in {bits.name}",
        "KV cache": f"{bits.kv_bytes(shape, question.context) / 1e9:,.2f} GB for {question.context:,} positions",
        "users that fit": f"{made.most_users:,} of {question.context:,} positions",
        "first token": f"{_milliseconds(made.ttft_s)} ({question.prompt:,} tokens)",
    }
    placement = made.placement
    if placement is not None:
        facts["a PE holds"] = (
            f"{placement.weight_bytes / 1024:,.1f} kB of weights, {placement.kv_bytes / 1024:,.1f} kB of cache, of "
            f"{placement.room_bytes / 1024:,.1f} kB"
        )
        facts["a layer computes on"] = f"{made.side} x {made.side} PEs"
    return facts


def _notes(made: Plan) -> list[str]:
    notes = list(made.notes)
    if made.question.shape.source.startswith("ASSUMED"):
        notes.append(made.question.shape.source.removeprefix("ASSUMED: "))
    return notes


def _why(made: Plan) -> str:
    return f"What bounds it: {made.bound}, {made.parts[made.bound] / sum(made.parts.values()):.0%} of a token's time."


def _wall_words(walls: Sequence[Wall], made: Plan) -> str:
    held = "; ".join(f"{wall.times:g} times the SRAM: {wall.holds / 1e9:,.0f} billion" for wall in walls)
    return (
        f"Models of the same kind, from a hundredth to ten times the size, on {made.count} wafers. The largest that "
        f"they hold: {held}. Past that, what does not fit comes in from outside for every token."
    )


def _load_cells(load: Load) -> tuple[str, ...]:
    return (
        f"{load.users:,}",
        f"{load.user_speed:,.1f}",
        f"{load.total_speed:,.0f}",
        "–" if load.joules is None else f"{load.joules:,.2f}",
        "–" if load.usd is None else f"{load.usd:,.2f}",
    )


def _load_line(load: Load) -> str:
    users, each, total, joules, usd = _load_cells(load)
    return f"{users:>8}{each:>14}{total:>14}{joules:>12}{usd:>14}"


def _other_line(other: Plan | tuple[Device, str], question: Question) -> str:
    if isinstance(other, tuple):
        return f"{other[0].title[:27]:28}{other[1]}"
    name, first = other.question.device.title[:27], _milliseconds(other.ttft_s)
    return f"{name:28}{other.count:>8}{other.speed:>9,.0f}{first:>14}{other.bound:>16}"


def _milliseconds(seconds: float | None) -> str:
    return "not known" if seconds is None else f"{seconds * 1e3:,.0f} ms"


def _plain(made: Plan) -> dict[str, Any]:
    question, placement = made.question, made.placement
    body: dict[str, Any] = {
        "model": question.shape.name,
        "device": question.device.name,
        "precision": question.precision.name,
        "context": question.context,
        "users": question.users,
        "devices": made.count,
        "tokens_per_s": made.speed,
        "token_s": made.token_s,
        "parts_s": made.parts,
        "bound": made.bound,
        "ttft_s": made.ttft_s,
        "most_users": made.most_users,
        "loads": [asdict(load) for load in made.loads],
        "assumed": _notes(made),
        "figures": {name: asdict(figure) for name, figure in question.device.figures.items()},
    }
    if placement is not None:
        body["placement"] = {
            "side": made.side,
            "weight_bytes_per_core": placement.weight_bytes,
            "kv_bytes_per_core": placement.kv_bytes,
            "room_bytes_per_core": placement.room_bytes,
            "regions": [asdict(region) for region in placement.regions],
        }
    return body
