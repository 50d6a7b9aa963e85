"""Outcomes that users record: retention, ratings, whatever comes weeks later. They stay out of the verdict.

`ab` cannot make a user come back; it can say who is to get which arm, and, once a table of outcomes is there, how the
arms compare. A user keeps their arm: assigning by request would let one person see both.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ultrafast.bench.ab.run.records import Pair
from ultrafast.bench.ab.statistics import planning
from ultrafast.bench.statistics import Estimate, bootstrap, bootstrap_apart, mean
from ultrafast.errors import ConfigError

_NUMBER_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one column of a table compares.

    Attributes:
        difference: B's mean less A's, with a 95 % interval for a table that is looked at once.
        always: half the width of an interval that holds at every look, around the same difference.
    """

    name: str
    a: Estimate
    b: Estimate
    difference: Estimate
    always: float

    @property
    def is_found(self) -> bool:
        """Whether the interval that holds at every look leaves out "no difference"."""
        return abs(self.difference.value) > self.always


def arm_of(unit: str, salt: str) -> str:
    """The arm of a user: half of all get either, and each the same at every visit."""
    return "AB"[hashlib.blake2b(f"{salt}\0{unit}".encode("utf-8", "replace"), digest_size=8).digest()[0] & 1]


def read_table(path: Path) -> list[dict[str, str]]:
    """A CSV file with a line of names, such as ``user,arm,returned,minutes``.

    Raises:
        ConfigError: the file is something else, or empty.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            rows = [{str(k): v for k, v in row.items() if k is not None and isinstance(v, str)} for row in reader]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a CSV file in UTF-8: {error}") from None
    if not rows:
        raise ConfigError(f"{path}: there is no row in it below the line of names")
    return rows


def compare_table(
    path: Path, rows: Sequence[Mapping[str, str]], *, unit: str, salt: str | None, planned: int
) -> list[Outcome]:
    """Each column of numbers, arm against arm; a unit is in one arm.

    Args:
        unit: the column that names users.
        salt: assigns arms, as `arm_of` does, where the table has no column ``arm``.
        planned: units a arm at which the interval for every look is to be tightest.

    Raises:
        ConfigError: columns are missing, an arm is neither ``A`` nor ``B``, or a unit is there twice.
    """
    arms: list[str] = []
    seen: set[str] = set()
    for number, row in enumerate(rows, 2):
        name = row.get(unit)
        if not name:
            raise ConfigError(f"{path}, line {number}: no {unit}; name the column of users with --unit")
        if name in seen:
            raise ConfigError(f"{path}, line {number}: {name!r} is there twice; add up the rows of a user first")
        seen.add(name)
        arm = row.get("arm") if "arm" in row or salt is None else arm_of(name, salt)
        if arm not in ("A", "B"):
            raise ConfigError(f"{path}, line {number}: arm {arm!r} is neither A nor B; or assign them with --salt")
        arms.append(arm)
    names = [name for name in rows[0] if name not in (unit, "arm")]
    columns = {name: [_number(row.get(name, "")) for row in rows] for name in names}
    found = [_outcome(name, arms, values, planned) for name, values in columns.items()]
    compared = [outcome for outcome in found if outcome is not None]
    if not compared:
        raise ConfigError(f"{path}: no column beside {unit} and arm has numbers for both arms")
    return compared


def paired_outcomes(pairs: Iterable[Pair]) -> Iterator[tuple[str, Estimate, Estimate, Estimate]]:
    """Numbers that workflows wrote down in both runs of a pair: name, mean in A, mean in B, B less A."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for pair in pairs:
        a, b = pair.sides
        for name in a.outcomes.keys() & b.outcomes.keys():
            in_a, in_b = a.outcomes[name], b.outcomes[name]
            if isinstance(in_a, float) and isinstance(in_b, float) and math.isfinite(in_a) and math.isfinite(in_b):
                rows.setdefault(name, []).append((in_a, in_b))
    for name, values in sorted(rows.items()):
        of_a, of_b = np.array(values).T
        yield name, mean(of_a), mean(of_b), bootstrap(lambda d: d.mean(axis=-1), of_b - of_a)


def _outcome(name: str, arms: Sequence[str], values: Sequence[float], planned: int) -> Outcome | None:
    by_arm = {arm: [v for v, of in zip(values, arms, strict=True) if of == arm and math.isfinite(v)] for arm in "AB"}
    a, b = np.array(by_arm["A"]), np.array(by_arm["B"])
    if len(a) < 2 or len(b) < 2:
        return None
    difference = bootstrap_apart(lambda first, second: second.mean(axis=-1) - first.mean(axis=-1), a, b)
    error = math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    always = planning.reach_of_looks(min(len(a), len(b)), planned) * error
    return Outcome(name, mean(a), mean(b), difference, always)


def _number(cell: str) -> float:
    word = cell.strip().lower()
    if word in _NUMBER_WORDS:
        return _NUMBER_WORDS[word]
    try:
        return float(word)
    except ValueError:
        return math.nan
