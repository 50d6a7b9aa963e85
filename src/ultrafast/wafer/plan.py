"""What a model needs of a device, and what it then does: the answer of ``ultrafast plan``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ultrafast.errors import ConfigError
from ultrafast.wafer.cost import cpu, roofline, wafer
from ultrafast.wafer.cost.constants import constant
from ultrafast.wafer.cost.roofline import Group
from ultrafast.wafer.cost.speculation import Speculation
from ultrafast.wafer.device import Device
from ultrafast.wafer.placement import Placement, check, least_wafers, place
from ultrafast.wafer.precision import Precision
from ultrafast.wafer.shape import Shape

SERVICE = "service"
"""What a service takes beside its layers; a part of a token's time on wafers."""

_SIDES = 9  # sizes of region that are tried: hops grow with it, work a PE shrinks


@dataclass(frozen=True, slots=True)
class Question:
    """What is planned.

    Attributes:
        context: positions that each sequence may have.
        prompt: tokens of the prompt that the time to first token is for.
        users: sequences at once, whose caches must fit.
        count: devices; 0: the fewest that hold it.
        most: devices at most.
        network_s: from the client and back, part of the time to first token.
        prefill: what computes the prompts, where wafers do not: the fewest that hold the model.
        usd_per_hour: of one device; None: as in the catalogue.
    """

    shape: Shape
    device: Device
    precision: Precision
    context: int = 8192
    prompt: int = 1024
    users: int = 1
    count: int = 0
    most: int = 1024
    speculation: Speculation | None = None
    network_s: float = 0.0
    usd_per_hour: float | None = None
    prefill: Device | None = None

    def __post_init__(self) -> None:
        check(self.shape, context=self.context, users=self.users, wafers=self.most)
        if self.count < 0 or self.count > self.most:
            raise ConfigError(f"the number of devices is {self.count}; it must be from 0 (the fewest) to {self.most}")
        if not 1 <= self.prompt <= self.context:
            raise ConfigError(f"prompt is {self.prompt}; it must be from 1 to the context, {self.context}")
        if self.prefill is not None and (self.device.kind != "wafer" or self.prefill.kind in ("wafer", "cpu")):
            raise ConfigError("prompts can be computed elsewhere, by GPUs and their like, for a plan on wafers")
        if self.network_s < 0 or (self.usd_per_hour or 0) < 0:
            raise ConfigError("a network time or price cannot be negative")


@dataclass(frozen=True, slots=True)
class Load:
    """So many users at once.

    Attributes:
        user_speed, total_speed: tokens a second of each user, and of all.
        joules: a token; usd: a million tokens; None where power or price are not known.
    """

    users: int
    user_speed: float
    total_speed: float
    joules: float | None
    usd: float | None


@dataclass(frozen=True)
class Plan:
    """The answer.

    Attributes:
        count: devices.
        parts: seconds of one user's token without drafts, by what they go to.
        ttft_s: of the prompt, alone; None where the arithmetic of the device is not known.
        placement: on wafers; side: PEs along a side of the square that each layer works on.
        prompts_at_once: prompts that follow each other through the layers at once without one waiting.
        loads: from one user to as many as fit.
        most_users: whose caches fit.
        notes: what is assumed, in words.
    """

    question: Question
    count: int
    parts: dict[str, float]
    ttft_s: float | None
    most_users: int
    loads: Sequence[Load]
    placement: Placement | None = None
    side: int = 0
    prompts_at_once: int = 1
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def token_s(self) -> float:
        """Seconds a token of one user, drafts included."""
        step_s = sum(self.parts.values())
        drafts = self.question.speculation
        return step_s if drafts is None else drafts.token_s(step_s)

    @property
    def speed(self) -> float:
        """Tokens a second of one user."""
        return 1 / self.token_s

    @property
    def bound(self) -> str:
        """The part that takes longest; ``service`` is a factor on all of them, and none itself."""
        parts = {name: seconds for name, seconds in self.parts.items() if name != SERVICE}
        return max(parts, key=parts.__getitem__)


def make(question: Question) -> Plan:
    """Plan.

    Raises:
        ConfigError: it does not fit as many devices as there may be, or the catalogue lacks a figure.
    """
    if question.device.kind == "wafer":
        return _on_wafers(question)
    if question.device.kind == "cpu":
        return _on_cpu(question)
    return _on_group(question)


def pace(made: Plan) -> Callable[[int], float]:
    """Seconds a token of each of so many users, drafts included: what a simulation of many users takes."""
    question = made.question
    drafts = question.speculation
    gain = 1.0 if drafts is None else drafts.token_s(1.0)
    if question.device.kind == "wafer":
        stage_s = made.token_s / (question.shape.num_layers + 1)
        return lambda users: max(made.token_s, users * stage_s)

    def step_s(users: int) -> float:
        context = question.context // 2
        if question.device.kind == "cpu":
            parts = cpu.token_parts(question.shape, question.device, question.precision, context, batch=users)
        else:
            group = Group(question.device, made.count)
            parts = roofline.token_parts(question.shape, group, question.precision, context, batch=users)
        return gain * sum(parts.values())

    return step_s


def prefill_per_token_s(made: Plan) -> float:
    """Seconds of a prompt token, from the prompt that was planned with.

    Raises:
        ConfigError: the arithmetic of the device is not known.
    """
    if made.ttft_s is None:
        raise ConfigError(f"{made.question.device.title}: flops_8bit is not known, and prompts need it")
    return (made.ttft_s - made.question.network_s) / made.question.prompt


def _on_wafers(question: Question) -> Plan:
    shape, device, precision = question.shape, question.device, question.precision
    size = {"context": question.context, "users": question.users}
    count = question.count or least_wafers(shape, device, precision, most=question.most, **size)
    placement = place(shape, device, precision, wafers=count, **size)
    side = _fastest_side(question, placement)
    efficiency = constant("wafer.service_efficiency")
    regions = placement.cost_regions(side)
    notes = [
        f"a service takes 1 / {efficiency:.2f} of the time of the layers (fitted on one measured service)",
        f"a pipeline of {shape.num_layers + 1} stages without bubbles, and prompts that slow no token: an upper bound",
    ]
    parts = wafer.token_parts(shape, device, regions, question.context // 2)
    if shape.experts is not None:
        apart = wafer.token_parts(shape, device, regions, question.context // 2, apart=True)
        notes.append(
            "experts cut over the whole region of their layer; with a square for each, a token would take "
            f"{sum(apart.values()) / sum(parts.values()):.1f} times as long"
        )
    parts[SERVICE] = sum(parts.values()) * (1 / efficiency - 1)
    prompt = wafer.pipelined_prefill(shape, device, regions, question.prompt)
    prefill_s, prompts_at_once = prompt.seconds / efficiency, max(1, int(prompt.seconds / prompt.occupied_s))
    if question.prefill is not None:
        prefill_s, prompts_at_once = _prefill_elsewhere(question, question.prefill, count, notes), 1
    token_s = sum(parts.values())
    spare = (placement.room_bytes - placement.weight_bytes) * placement.cores
    most_users = int(spare / (placement.kv_bytes * placement.cores / question.users))
    stages = shape.num_layers + 1

    def total(users: int) -> float:
        return min(users, stages) / token_s

    return Plan(
        question,
        count,
        parts,
        question.network_s + prefill_s + parts.get("wafer links", 0.0),
        most_users,
        _loads(question, count, most_users, total, extra=stages),
        placement,
        side,
        prompts_at_once,
        notes,
    )


def _prefill_elsewhere(question: Question, device: Device, wafers: int, notes: list[str]) -> float:
    """Seconds of a prompt on other devices, and of its keys and values on their way to the wafers."""
    elsewhere = replace(question, device=device, prefill=None, count=0, usd_per_hour=None)
    made = _on_group(elsewhere)
    assert made.ttft_s is not None
    moved = question.precision.kv_bytes(question.shape, question.prompt)
    transfer_s = moved / (wafers * question.device["off_wafer_bytes_per_s"]) + question.device["hop_latency_s"]
    notes.append(
        f"prompts computed by {made.count} x {device.title} in {made.ttft_s - question.network_s:.3f} s; their keys "
        f"and values, {moved / 1e9:.2f} GB, take {transfer_s * 1e3:.1f} ms to the wafers"
    )
    return made.ttft_s - question.network_s + transfer_s


def _on_group(question: Question) -> Plan:
    shape, device, precision = question.shape, question.device, question.precision
    count = question.count or _least_devices(question)
    group = Group(device, count)
    most_users = roofline.most_sequences(shape, group, precision, question.context)
    if most_users < question.users:
        raise ConfigError(
            f"{count} x {device.title} have room for {most_users} sequences of {question.context:,} positions beside "
            f"{shape.name} in {precision.name}; {question.users} were asked for"
        )
    parts = roofline.token_parts(shape, group, precision, question.context // 2)

    def total(users: int) -> float:
        return users / sum(roofline.token_parts(shape, group, precision, question.context // 2, batch=users).values())

    prefill_s = roofline.prefill_s(shape, group, precision, question.prompt)
    notes = (f"launches, all-reduces and shares of peak as fitted for {group.stack}",)
    loads = _loads(question, count, most_users, total)
    return Plan(question, count, parts, question.network_s + prefill_s, most_users, loads, notes=notes)


def _on_cpu(question: Question) -> Plan:
    shape, device, precision = question.shape, question.device, question.precision
    if question.count > 1:
        raise ConfigError("a plan for CPUs is for one of them: their layers are not spread over several")
    spare = device["memory_bytes"] - precision.weight_bytes(shape)
    most_users = min(roofline.MOST_TOKENS, int(spare / precision.kv_bytes(shape, question.context)))
    if spare < 0 or most_users < question.users:
        needed = precision.weight_bytes(shape) + question.users * precision.kv_bytes(shape, question.context)
        raise ConfigError(
            f"{shape.name} in {precision.name} takes {needed / 1e9:,.1f} GB with {question.users} x "
            f"{question.context:,} positions; {device.title} has {device['memory_bytes'] / 1e9:,.1f} GB"
        )
    parts = cpu.token_parts(shape, device, precision, question.context // 2)

    def total(users: int) -> float:
        return users / sum(cpu.token_parts(shape, device, precision, question.context // 2, batch=users).values())

    prefill_s = cpu.prefill_s(shape, device, precision, question.prompt)
    ttft_s = None if prefill_s is None else question.network_s + prefill_s
    notes = (
        "nine tenths of the arithmetic are not hidden by reading, as with this project's engine"
        if "arithmetic" in parts
        else "arithmetic and barriers hidden by reading: an upper bound",
    )
    return Plan(question, 1, parts, ttft_s, most_users, _loads(question, 1, most_users, total), notes=notes)


def _least_devices(question: Question) -> int:
    """The fewest devices, a power of two as tensor parallelism has it, that hold weights and caches."""
    shape, device, precision = question.shape, question.device, question.precision
    needed = precision.weight_bytes(shape) + question.users * precision.kv_bytes(shape, question.context)
    each = roofline.memory_bytes(device) * constant("memory_share")
    count = 1 << max(0, math.ceil(math.log2(needed / each)))
    if count > question.most:
        raise ConfigError(
            f"{shape.name} in {precision.name} takes {needed / 1e9:,.1f} GB with {question.users:,} x "
            f"{question.context:,} positions; {question.most} x {device.title} have room for "
            f"{question.most * each / 1e9:,.1f} GB: {(needed - question.most * each) / 1e9:,.1f} GB too few"
        )
    return count


def _fastest_side(question: Question, placement: Placement) -> int:
    low, high = min(placement.least_side, placement.side), placement.side
    sides = {low + (high - low) * step // (_SIDES - 1) for step in range(_SIDES)}

    def token_s(side: int) -> float:
        regions = placement.cost_regions(side)
        return sum(wafer.token_parts(question.shape, question.device, regions, question.context // 2).values())

    return min(sides, key=token_s)


def _loads(
    question: Question, count: int, most_users: int, total: Callable[[int], float], *, extra: int = 0
) -> list[Load]:
    """Powers of two up to what fits, and the number of stages of a pipeline, where more users stop being free."""
    numbers = {1 << n for n in range(16) if 1 << n <= most_users} | {most_users} | ({extra} if extra else set())
    drafts = question.speculation
    gain = 1.0 if drafts is None else 1 / drafts.token_s(1.0)
    power, price = question.device.get("power_w"), question.usd_per_hour or question.device.get("usd_per_hour")
    loads = []
    for users in sorted(number for number in numbers if 0 < number <= most_users):
        speed = total(users) * gain
        joules = None if power is None else count * power / speed
        usd = None if price is None else count * price / 3600 / speed * 1e6
        loads.append(Load(users, speed / users, speed, joules, usd))
    return loads
