"""Requests that arrive at a service: made up at random, or read from a trace."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ultrafast.errors import ConfigError

_MOST_TOKENS = 1 << 24


@dataclass(frozen=True)
class Workload:
    """Requests in the order of their arrival; arrays of one length.

    Attributes:
        arrivals_s: seconds from the start, never falling.
        prompts, outputs: tokens; an output has at least one.
        tiers: index of each request's tier.
    """

    arrivals_s: npt.NDArray[np.float64]
    prompts: npt.NDArray[np.int64]
    outputs: npt.NDArray[np.int64]
    tiers: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arrivals_s)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long prompts or outputs are: log-normal around a median, as those of published traces roughly are.

    Attributes:
        sigma: standard deviation of the logarithm; 0: all have the median.
    """

    median: float
    sigma: float = 0.0

    def draw(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        """So many lengths, whole and at least 1."""
        drawn = self.median * np.exp(self.sigma * rng.standard_normal(count)) if self.sigma else self.median
        return np.broadcast_to(np.clip(np.rint(drawn), 1, _MOST_TOKENS).astype(np.int64), count).copy()


def poisson(
    rate: float, count: int, prompts: Lengths, outputs: Lengths, shares: Sequence[float], *, seed: int
) -> Workload:
    """``count`` requests at ``rate`` a second on average, each of a tier with the chance that ``shares`` give.

    Raises:
        ConfigError: an argument is impossible.
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise ConfigError(f"a rate of {rate:g} requests a second is none")
    if count < 1:
        raise ConfigError(f"{count} requests are too few to simulate")
    total = sum(shares)
    if total <= 0 or min(shares) < 0:
        raise ConfigError("the shares of the tiers must be positive numbers")
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate, count))
    tiers = rng.choice(len(shares), count, p=np.array(shares) / total)
    return Workload(arrivals, prompts.draw(rng, count), outputs.draw(rng, count), tiers)


def from_trace(path: Path, shares: Sequence[float], *, scale: float = 1.0, seed: int) -> Workload:
    """Requests of an Azure (CSV), BurstGPT (CSV) or Mooncake (JSONL) trace; those without output are left out.

    Args:
        scale: times between arrivals are multiplied with it.

    Raises:
        ConfigError: the file cannot be read or is none of these; the message has the line.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = sorted(_jsonl(file, path) if path.suffix == ".jsonl" else _csv(file, path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not rows:
        raise ConfigError(f"{path}: no request in it has an output")
    times, prompts, outputs = (np.array(column) for column in zip(*rows, strict=True))
    rng = np.random.default_rng(seed)
    tiers = rng.choice(len(shares), len(rows), p=np.array(shares) / sum(shares))
    return Workload((times - times[0]) * scale, prompts, outputs, tiers)


_Row = tuple[float, int, int]

_COLUMNS = (  # (time, prompt, output), and what the time is
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    ("Timestamp", "Request tokens", "Response tokens"),
)


def _csv(file: Any, path: Path) -> Iterator[_Row]:
    reader = csv.DictReader(file)
    fields = reader.fieldnames or []
    columns = next((names for names in _COLUMNS if set(names) <= set(fields)), None)
    if columns is None:
        raise ConfigError(f"{path}: no trace that is known: its columns are {', '.join(map(str, fields))[:200]}")
    try:
        time, prompt, output = columns
        for row in reader:
            yield from _row(row[time], row[prompt], row[output], path, reader.line_num)
    except csv.Error as error:
        raise ConfigError(f"{path}:{reader.line_num}: {error}") from None


def _jsonl(file: Any, path: Path) -> Iterator[_Row]:
    for number, line in enumerate(file, 1):
        try:
            row = json.loads(line)
            yield from _row(row["timestamp"] / 1e3, row["input_length"], row["output_length"], path, number)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ConfigError(f"{path}:{number}: no request of a Mooncake trace: {error!r:.200}") from None


def _row(time: Any, prompt: Any, output: Any, path: Path, line: int) -> Iterator[_Row]:
    try:
        seconds = _seconds(time)
        tokens = int(prompt), int(output)
    except (ValueError, TypeError, OverflowError):
        raise ConfigError(f"{path}:{line}: no request: {time!r:.60}, {prompt!r:.40}, {output!r:.40}") from None
    if not math.isfinite(seconds) or not all(0 <= count <= _MOST_TOKENS for count in tokens):
        raise ConfigError(f"{path}:{line}: impossible: {time!r:.60}, {prompt!r:.40}, {output!r:.40}")
    if tokens[1]:  # BurstGPT has failures, without output
        yield seconds, max(1, tokens[0]), tokens[1]


def _seconds(time: Any) -> float:
    """A number, or a date and time as Azure's traces have it (seven digits after the second)."""
    try:
        return float(time)
    except ValueError:
        return datetime.fromisoformat(str(time)[:26]).timestamp()
