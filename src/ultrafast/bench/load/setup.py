"""From options to what is run: a profile, what replaces it, and the checks of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ultrafast import traces
from ultrafast.bench.client.endpoint import Endpoint
from ultrafast.bench.load.arrivals import ClosedLoop, Load, OpenLoop, Replay, Spread
from ultrafast.bench.load.material import Category
from ultrafast.bench.load.plan import cells
from ultrafast.bench.load.profiles import PROFILES, Profile
from ultrafast.bench.load.recount import counter
from ultrafast.bench.load.runner import Setup
from ultrafast.bench.load.slo import Slo
from ultrafast.bench.load.worker import Sampling
from ultrafast.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asked for, as options; ``None``: as the profile has it."""

    profile: str = "quick"
    prompt_tokens: str | None = None
    output_tokens: str | None = None
    concurrency: str | None = None
    think_s: float = 0.0
    rate: str | None = None
    spread: Spread = "poisson"
    trace: Path | None = None
    trace_format: traces.Format | None = None
    time_scale: float = 1.0
    max_in_flight: int | None = None
    calls: int | None = None
    duration_s: float | None = None
    warm_up: int | None = None
    category: Category | None = None
    shared_tokens: int = 0
    temperature: float | None = None
    seed: int = 0
    timeout_s: float = 600.0
    slo: str | None = None
    tokenizer: Path | None = None
    workers: int | None = None

    @property
    def base(self) -> Profile:
        return PROFILES[self.profile]

    @property
    def objectives(self) -> Slo | None:
        """
        Raises:
            ConfigError: they are not said right.
        """
        said = self.slo or self.base.slo
        return Slo.parse(said) if said else None


def setup_of(
    wish: Wish, loads: Sequence[Load], endpoints: Sequence[Endpoint], *, ignore_eos: bool, sends_seed: bool
) -> Setup:
    """The whole set-up.

    Args:
        loads: see `loads_of`.
        endpoints: one a tier.
        ignore_eos, sends_seed: fields that not every server takes.

    Raises:
        ConfigError: options are wrong, or contradict each other.
    """
    calls, of_trace = wish.calls, False
    for load in loads:
        if isinstance(load, Replay):
            calls, of_trace = len(load.trace.calls), True
    if calls is None and wish.duration_s is None:
        calls = wish.base.calls
    if any(endpoint.api == "socket" for endpoint in endpoints) and any(load.in_flight_limit is None for load in loads):
        raise ConfigError("over a WebSocket each call in flight takes a connection: say how many with --max-in-flight")
    if wish.tokenizer is not None:
        counter(wish.tokenizer)  # an error is told now, not in a worker
    extra: dict[str, Any] = {"ignore_eos": True} if ignore_eos else {}
    return Setup(
        cells=cells(
            [endpoint.tier for endpoint in endpoints],
            [None] if of_trace else _lengths("--prompt-tokens", wish.prompt_tokens, wish.base.prompt_tokens),
            [None] if of_trace else _lengths("--output-tokens", wish.output_tokens, wish.base.output_tokens),
            loads,
        ),
        endpoints={endpoint.tier: endpoint for endpoint in endpoints},
        category=wish.category or wish.base.category,
        sampling=Sampling(wish.temperature, wish.seed, sends_seed, extra),
        calls=calls,
        duration_s=wish.duration_s,
        warm_up=wish.base.warm_up if wish.warm_up is None else wish.warm_up,
        shared_tokens=wish.shared_tokens,
        timeout_s=wish.timeout_s,
        tokenizer=wish.tokenizer,
        workers=wish.workers,
    )


def description(wish: Wish, setup: Setup) -> dict[str, Any]:
    """The set-up as the document has it: all it takes to run it again."""
    endpoints = list(setup.endpoints.values())
    said: dict[str, Any] = {
        "url": endpoints[0].base_url,
        "model": endpoints[0].model,
        "api": endpoints[0].api,
        "tiers": [endpoint.tier for endpoint in endpoints],
        "profile": wish.profile,
        "calls": setup.calls,
        "duration_s": setup.duration_s,
        "warm_up": setup.warm_up,
        "category": setup.category,
        "shared_prefix_tokens": setup.shared_tokens,
        "temperature": setup.sampling.temperature,
        "seed": setup.sampling.seed,
        "sent_as_well": dict(setup.sampling.extra),
        "timeout_s": setup.timeout_s,
        "tokenizer": setup.tokenizer and setup.tokenizer.name,
        "slo": None if wish.objectives is None else str(wish.objectives),
        "prices": {endpoint.tier or "": endpoint.price for endpoint in endpoints},
    }
    load = setup.cells[0].load
    if isinstance(load, Replay):
        trace = load.trace
        said["trace"] = {
            "name": trace.name,
            "format": trace.format,
            "calls": len(trace.calls),
            "without_answer": trace.without_answer,
            "shortened": trace.shortened,
        }
    return said


def loads_of(wish: Wish) -> list[Load]:
    """Every load that is asked for; a trace is read.

    Raises:
        ConfigError: options are wrong, or contradict each other; a file is no trace.
    """
    given = [
        name
        for name, value in (("--concurrency", wish.concurrency), ("--rate", wish.rate), ("--trace", wish.trace))
        if value is not None
    ]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)}: a run has one kind of load")
    if wish.trace is not None:
        return [_replay(wish, wish.trace)]
    rates = [] if wish.concurrency else list(wish.base.rates)
    if wish.rate is not None:
        rates = _numbers("--rate", wish.rate)
    if rates:
        return [OpenLoop(rate, wish.spread, wish.max_in_flight) for rate in rates]
    if wish.max_in_flight is not None:
        raise ConfigError("--max-in-flight is for --rate and --trace; a closed loop has --concurrency")
    in_flight = _lengths("--concurrency", wish.concurrency, wish.base.in_flight)
    return [ClosedLoop(count, wish.think_s) for count in in_flight]


def _replay(wish: Wish, path: Path) -> Replay:
    limits = [
        _lengths(name, value, ())
        for name, value in (("--prompt-tokens", wish.prompt_tokens), ("--output-tokens", wish.output_tokens))
    ]
    if any(len(limit) > 1 for limit in limits):
        raise ConfigError("with --trace, --prompt-tokens and --output-tokens are limits: one number each")
    duration_s = None if wish.duration_s is None or wish.time_scale <= 0 else wish.duration_s / wish.time_scale
    trace = traces.read_trace(path, wish.trace_format, calls=wish.calls, duration_s=duration_s)
    prompt, output = (limit[0] if limit else None for limit in limits)
    return Replay(trace.within(prompt, output), wish.time_scale, wish.max_in_flight)


def _lengths(name: str, text: str | None, default: Sequence[int]) -> list[int]:
    if text is None:
        return list(default)
    numbers = _numbers(name, text)
    for number in numbers:
        if number != int(number) or number > traces.MAX_TOKENS:
            raise ConfigError(f"{name} {text!r}: {number:g} is no count of that kind")
    return [int(number) for number in numbers]


def _numbers(name: str, text: str) -> list[float]:
    numbers = []
    for part in text.split(","):
        try:
            number = float(part)
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            raise ConfigError(f"{name} {text!r}: {part!r} is no number above 0; several are separated by commas")
        if number in numbers:
            raise ConfigError(f"{name} {text!r}: {part} is there twice")
        numbers.append(number)
    return numbers
