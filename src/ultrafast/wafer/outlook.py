"""What else a plan should tell: how a wanted speed is reached, how other devices do, and where the memory wall is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ultrafast.errors import ConfigError
from ultrafast.wafer import plan
from ultrafast.wafer.cost.speculation import Speculation
from ultrafast.wafer.device import Device, Figure
from ultrafast.wafer.plan import Plan, Question
from ultrafast.wafer.shape import Experts, Shape

_MOST_DRAFT = 8  # tokens of a draft
_COUNTS = 24  # numbers of devices that are tried


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether, and how, a plan gets to a speed.

    Attributes:
        count: the fewest devices that reach it as planned; None if none do.
        best_count, best_speed: where the speed is highest, whatever the number of devices.
        draft_steps, tokens_per_step, acceptance: the shortest draft that would do on the devices of the plan, the
            tokens that each of its steps would have to give, and the chance of each drafted token to be accepted; None
            if no draft of up to 8 tokens does, or none is needed.
    """

    target: float
    count: int | None
    best_count: int
    best_speed: float
    draft_steps: int | None = None
    tokens_per_step: float | None = None
    acceptance: float | None = None


def reach(made: Plan, target: float) -> Reach:
    """How the plan's model gets to ``target`` tokens a second for one user.

    Raises:
        ConfigError: the target is no speed.
    """
    if not (target > 0 and math.isfinite(target)):
        raise ConfigError(f"a target of {target:g} tokens a second is none")
    question = made.question
    speeds = {made.count: made.speed}
    if question.device.kind != "cpu":
        for count in _counts(made.count, question):
            try:
                speeds[count] = plan.make(replace(question, count=count)).speed
            except ConfigError:  # some numbers of GPUs hold a model, and cannot be cut so
                continue
    enough = [count for count, speed in speeds.items() if speed >= target]
    best = max(speeds, key=speeds.__getitem__)
    found = Reach(target, min(enough) if enough else None, best, speeds[best])
    return found if made.speed >= target else _with_drafts(found, sum(made.parts.values()))


def _counts(least: int, question: Question) -> list[int]:
    """Numbers of devices from those of the plan on: on wafers, up to one a layer; in groups, powers of two."""
    if question.device.kind == "wafer":
        most = min(question.most, max(least, question.shape.num_layers))
        return sorted({least + (most - least) * step // (_COUNTS - 1) for step in range(_COUNTS)} - {least})
    most = min(question.most, int(question.device.get("max_devices") or question.most))
    return [least << n for n in range(1, 8) if least << n <= most]


def _with_drafts(found: Reach, step_s: float) -> Reach:
    for steps in range(1, _MOST_DRAFT + 1):
        needed = found.target * Speculation(1.0, steps).token_s(step_s)
        if needed > steps + 1:
            continue
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            enough = Speculation.from_rate(middle, steps).tokens_per_step >= needed
            low, high = (low, middle) if enough else (middle, high)
        return replace(found, draft_steps=steps, tokens_per_step=max(1.0, needed), acceptance=high)
    return found


def compare(question: Question, devices: Sequence[Device]) -> list[Plan | tuple[Device, str]]:
    """The same on other devices, the fewest of each: plans, or why there is none."""
    made: list[Plan | tuple[Device, str]] = []
    for device in devices:
        try:
            made.append(plan.make(replace(question, device=device, count=0, usd_per_hour=None, prefill=None)))
        except ConfigError as error:
            made.append((device, str(error)))
    return made


@dataclass(frozen=True, slots=True)
class Wall:
    """Speed against size on a fixed number of wafers with so many times their SRAM.

    Attributes:
        parameters: sizes, in numbers of parameters.
        speeds: tokens a second of one user; past ``holds``, what does not fit streams in from outside.
        holds: the largest of these sizes that the wafers hold; 0: none.
    """

    times: float
    parameters: Sequence[float]
    speeds: Sequence[float]
    holds: float


def memory_wall(question: Question, count: int, *, times: Sequence[float] = (1, 2, 4), points: int = 33) -> list[Wall]:
    """How speed falls with size on ``count`` wafers, for models of the plan's kind from a hundredth to ten times of it.

    A model that outgrows the SRAM has the rest of its weights sent in for every token, over the links to the outside.
    """
    scales = [0.01 * 1000 ** (n / (points - 1)) for n in range(points)]
    shapes = [scaled(question.shape, scale) for scale in scales]
    return [_wall(question, count, shapes, more) for more in times]


def scaled(shape: Shape, times: float) -> Shape:
    """A model of the same kind with about ``times`` the parameters: layers, width and feed-forward grow alike."""
    factor = times ** (1 / 3)
    experts = shape.experts
    if experts is not None:
        experts = Experts(
            experts.count,
            experts.active,
            _times(experts.intermediate_size, factor),
            experts.shared,
            min(experts.dense_layers, _times(shape.num_layers, factor)),
            experts.every,
        )
    heads = max(1, round(shape.num_heads * factor / shape.num_kv_heads)) * shape.num_kv_heads
    return replace(
        shape,
        num_layers=_times(shape.num_layers, factor),
        hidden_size=_times(shape.hidden_size, factor),
        intermediate_size=_times(shape.intermediate_size, factor) if shape.intermediate_size else 0,
        num_heads=heads,
        windows=(),
        experts=experts,
    )


def _times(size: int, factor: float) -> int:
    return max(1, round(size * factor))


def _wall(question: Question, count: int, shapes: Sequence[Shape], times: float) -> Wall:
    device = _with_sram(question.device, times)
    speeds, holds = [], 0.0
    for shape in shapes:
        asked = replace(question, shape=shape, device=device, count=count, most=max(count, question.most))
        try:
            speeds.append(plan.make(asked).speed)
            holds = max(holds, float(shape.num_parameters))
        except ConfigError:
            speeds.append(_streaming_speed(asked))
    return Wall(times, [float(shape.num_parameters) for shape in shapes], speeds, holds)


def _streaming_speed(question: Question) -> float:
    """Of a model that does not fit: as if it did, and what is too much of its active weights comes in each token."""
    roomy = _with_sram(question.device, 1e6)
    made = plan.make(replace(question, device=roomy))
    held = question.count * question.device["sram_bytes"]
    missing = max(0.0, 1 - held / question.precision.weight_bytes(question.shape))
    incoming = missing * question.precision.active_bytes(question.shape)
    return 1 / (made.token_s + incoming / (question.count * question.device["off_wafer_bytes_per_s"]))


def _with_sram(device: Device, times: float) -> Device:
    changed = {
        name: Figure(device[name] * times, "assumed", f"{times:g} times {device.title}")
        for name in ("sram_bytes", "sram_bytes_per_core")
    }
    return replace(device, figures={**device.figures, **changed})
