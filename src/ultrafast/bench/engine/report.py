"""An `EngineSpeed` as a table for people and as JSON for programs (docs/benchmarks.md describes the fields)."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from typing import Any

from ultrafast.bench.engine.process_memory import Memory
from ultrafast.bench.engine.samples import Samples
from ultrafast.bench.engine.speed import EngineSpeed, Figure


def report(result: EngineSpeed) -> str:
    """Medians, with the slowest and the fastest round in brackets, and each as a share of its limit."""
    return "\n".join(_lines(result))


def to_json(result: EngineSpeed) -> str:
    """Every sample, and what follows from them."""
    return json.dumps(_document(result), indent=2) + "\n"


def _lines(result: EngineSpeed) -> Iterator[str]:
    yield f"{result.model_id}: {result.weight_bytes / 1e6:,.1f} MB of weights read per token"
    yield f"{result.cpu_model}: {result.isa}, {result.threads} thread{'s' * (result.threads != 1)}"
    if result.read_bytes_per_s:
        read = Samples(tuple(result.read_bytes_per_s))
        method, _ = result.read_methods.most_common(1)[0]
        passes = read.median / result.weight_bytes
        yield f"reading memory ({method}): {_spread(read, 1e-9, 1)} GB/s, or {passes:,.0f} times the weights a second"
    if result.figures:
        yield ""
        yield f"{'':52}limits in tokens/s by"
        yield f"{'tokens/s':22}{'median':>9}   {'(slowest to fastest)':22}{'bytes':>8}{'arithmetic':>12}   share"
        yield from map(_row, result.figures.values())
        yield "share: of the lower limit, in the same round; median of the rounds"
        for key, figure in result.figures.items():
            if key.startswith("decode_context"):
                yield f"{figure.title} runs at {figure.share_of_bytes:.2f} of the speed at which its bytes can be read"
    if result.first_token_s:
        yield ""
    for length, seconds in result.first_token_s.items():
        yield f"{f'first token after {length:,}':22}{_spread(Samples(tuple(seconds)), 1e3, 1)} ms"
    if result.load_s:
        yield f"{'load':22}{_spread(Samples(tuple(result.load_s)), 1, 2)} s (file in the system's cache)"
    if result.memory:
        yield _memory(result.memory)
    if result.profile and result.profile.steps:
        yield ""
        yield from _profile(result)
    if not result.complete:
        yield "interrupted: what is missing above was not measured, the rest in fewer rounds"


def _row(figure: Figure) -> str:
    spread = f"({figure.speed.low:,.0f} to {figure.speed.high:,.0f})"
    by_bytes, by_arithmetic = statistics.median(figure.by_bytes), statistics.median(figure.by_arithmetic)
    limits = f"{by_bytes:8,.0f}{by_arithmetic:12,.0f}{figure.share:8.2f}"
    return f"{figure.title:22}{figure.speed.median:9,.0f}   {spread:22}{limits}"


def _spread(samples: Samples, factor: float, digits: int) -> str:
    low, high = samples.low * factor, samples.high * factor
    return f"{samples.median * factor:9,.{digits}f}   ({low:,.{digits}f} to {high:,.{digits}f})"


def _memory(memory: Memory) -> str:
    def megabytes(count: int) -> str:
        return f"{count / 1e6:,.0f}"

    return (
        f"{'memory':22}{megabytes(memory.in_use):>9} MB with {memory.context:,} tokens in the KV cache = "
        f"{megabytes(memory.before_load)} libraries + {megabytes(memory.file)} model file + "
        f"{megabytes(memory.kv)} KV + {megabytes(memory.rest)} rest ({megabytes(memory.loaded)} when loaded)"
    )


def _profile(result: EngineSpeed) -> Iterator[str]:
    assert result.profile
    scale = 1e6 / result.profile.steps
    yield f"{'us per token':22}{'work':>9}{'waiting':>11}    (first worker, {result.profile.steps:,} steps, profiled)"
    for name, time in result.profile.stages.items():
        yield f"  {name:20}{time.work_s * scale:9,.1f}{time.wait_s * scale:11,.1f}"
    yield f"  {'python':20}{_outside(result) * scale:9,.1f}"
    yield f"  {'whole step':20}{result.profile_s * scale:9,.1f}"


def _outside(result: EngineSpeed) -> float:
    """Seconds of the profiled steps that passed outside native code."""
    assert result.profile
    return result.profile_s - sum(time.work_s + time.wait_s for time in result.profile.stages.values())


def _document(result: EngineSpeed) -> dict[str, Any]:
    read = Samples(tuple(result.read_bytes_per_s)).to_dict() if result.read_bytes_per_s else None
    return {
        "model_id": result.model_id,
        "cpu_model": result.cpu_model,
        "isa": result.isa,
        "threads": result.threads,
        "weight_bytes": result.weight_bytes,
        "complete": result.complete,
        "read_bytes_per_s": read,
        "read_methods": dict(result.read_methods),
        "tokens_per_s": {
            key: {
                **figure.speed.to_dict(),
                "limit_by_bytes": figure.by_bytes,
                "limit_by_arithmetic": [None if math.isinf(limit) else limit for limit in figure.by_arithmetic],
                "limit_set_by": figure.binding,
                "share_of_limit": figure.share,
                "share_of_bytes_limit": figure.share_of_bytes,
            }
            for key, figure in result.figures.items()
        },
        "first_token_s": {length: Samples(tuple(values)).to_dict() for length, values in result.first_token_s.items()},
        "load_s": Samples(tuple(result.load_s)).to_dict() if result.load_s else None,
        "memory_bytes": result.memory and result.memory.to_dict(),
        "profile": _profile_document(result),
    }


def _profile_document(result: EngineSpeed) -> dict[str, Any] | None:
    if not result.profile or not result.profile.steps:
        return None
    steps = result.profile.steps
    return {
        "steps": steps,
        "step_us": result.profile_s * 1e6 / steps,
        "python_us": _outside(result) * 1e6 / steps,
        "stages_us": {
            name: {"work": time.work_s * 1e6 / steps, "wait": time.wait_s * 1e6 / steps}
            for name, time in result.profile.stages.items()
        },
    }
