"""The journal of a run: its setup, then one line a pair, once both of its runs are over.

A kill loses the pair that was under way, and that pair runs again as a whole: two runs hours apart are no pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from ultrafast.bench.ab.run.records import Pair, Plan, Run
from ultrafast.bench.ab.run.setup import Setup
from ultrafast.bench.records import CallLog, call_from_json, call_to_json, plain, read_log
from ultrafast.errors import ConfigError

_FORMAT = "ultrafast-ab-journal"


@dataclass(frozen=True, slots=True)
class Journal:
    """What a journal holds: the setup as JSON has it, and the pairs by number."""

    setup: Mapping[str, Any]
    pairs: Mapping[int, Pair]


def read(path: Path) -> Journal:
    """
    Raises:
        ConfigError: no such file, or it is no journal.
    """
    lines = read_log(path)
    if not lines or lines[0].get("format") != _FORMAT or not isinstance(lines[0].get("setup"), dict):
        raise ConfigError(f"{path}: not a journal of `ultrafast ab run`")
    pairs = {}
    for number, line in enumerate(lines[1:], 2):
        try:
            pair = _pair_of(line)
        except (ConfigError, msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path}, line {number}: not a pair of runs: {error}") from None
        pairs[pair.plan.number] = pair
    return Journal(lines[0]["setup"], pairs)


class Writer:
    """Writes a new journal, or goes on with one of the same setup.

    Attributes:
        done: pairs that were there already, by number.

    Raises:
        ConfigError: the file is something else, or a journal of another setup.
    """

    def __init__(self, path: Path, setup: Setup) -> None:
        self.done: dict[int, Pair] = {}
        wanted = plain(setup)
        exists = path.exists() and path.stat().st_size > 0
        if exists:
            journal = read(path)
            _same(path, journal.setup, wanted)
            self.done = dict(journal.pairs)
        self._log = CallLog(path)
        if not exists:
            self._log.append({"format": _FORMAT, "setup": wanted})

    def add(self, pair: Pair) -> None:
        """Once this returns, a kill does not lose the pair."""
        calls = [[call_to_json(call) for call in run.calls] for run in pair.runs]
        bare = [{f.name: getattr(run, f.name) for f in fields(Run) if f.name != "calls"} for run in pair.runs]
        runs = [run | {"calls": made} for run, made in zip(bare, calls, strict=True)]
        self._log.append({"plan": pair.plan, "started_at": pair.started_at, "runs": runs})

    def close(self) -> None:
        self._log.close()


def _pair_of(line: Mapping[str, Any]) -> Pair:
    first, second = (_run_of(run) for run in line["runs"])
    plan = msgspec.convert(line["plan"], Plan)
    if sorted((first.arm, second.arm)) != sorted(plan.order.upper()):
        raise ValueError(f"order {plan.order!r} is not that of the runs")
    return Pair(plan, str(line["started_at"]), (first, second))


def _run_of(data: Mapping[str, Any]) -> Run:
    run = msgspec.convert({**data, "calls": []}, Run)
    if run.wall_s <= 0:
        raise ValueError(f"a run of {run.wall_s} seconds")
    return replace(run, calls=[call_from_json(call) for call in data["calls"]])


def _same(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    if changed:
        name = changed[0]
        raise ConfigError(
            f"{path} is of a run with another setup ({name}: {old.get(name)!r} there, {new.get(name)!r} now); "
            "say the same again to go on with it, or name another file with --journal"
        )
