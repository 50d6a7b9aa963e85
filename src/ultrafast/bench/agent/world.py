"""The small world of the task: the ledgers of a harbour, of which some have a wrong total, and the work done on them.

Everything follows from the number of defects, so that any two runs find the same files and give the same results.
"""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from itertools import product

_LINES = 8  # ships of a ledger
_HEADER = "berth,ship,days,fee,total"
_DOCKS = [
    f"{a}_{b}" for b, a in product(("quay", "dock", "pier", "basin", "wharf"), ("north", "south", "east", "west"))
]
_SHIPS = [
    f"{a} {b}"
    for b, a in product(
        ("Heron", "Otter", "Gull", "Seal", "Tern", "Pike", "Swan", "Crane", "Rook", "Hare", "Lark", "Wren"),
        ("Grey", "White", "Old", "Young", "Quick", "Quiet", "Proud", "Lucky", "Brave", "Merry", "Sober", "Steady",
         "Golden", "Silver", "Little", "Great"),
    )
]  # fmt: skip

MAX_FILES = len(_DOCKS)
"""Ledgers that there are names for."""


@dataclass(frozen=True, slots=True)
class Defect:
    """A line with a wrong total."""

    file: str
    ship: str
    line: str
    repaired: str


class World:
    """Ledgers by name, in comma-separated values.

    Args:
        num_files: at most `MAX_FILES`; the first ``num_defects`` of them have one wrong total each.
    """

    def __init__(self, num_files: int, num_defects: int) -> None:
        rng = random.Random(1)
        ships = iter(rng.sample(_SHIPS, num_files * _LINES))
        self.files: dict[str, str] = {}
        self.defects: list[Defect] = []
        for dock in _DOCKS[:num_files]:
            file = f"{dock}.csv"
            lines = [_line(f"{dock[0].upper()}{berth}", next(ships), rng) for berth in range(1, _LINES + 1)]
            if len(self.defects) < num_defects:
                at = rng.randrange(_LINES)
                repaired = lines[at]
                fields = repaired.split(",")
                lines[at] = ",".join([*fields[:-1], str(int(fields[-1]) + rng.randint(1, 9))])
                self.defects.append(Defect(file, fields[1], lines[at], repaired))
            self.files[file] = "\n".join([_HEADER, *lines])

    def list_files(self) -> str:
        return "\n".join(sorted(self.files))

    def find_text(self, text: str) -> str:
        """Lines that hold the text, with their files and numbers (from 1)."""
        found = [
            f"{file}:{number}: {line}"
            for file, content in sorted(self.files.items())
            for number, line in enumerate(content.splitlines(), 1)
            if text in line
        ]
        return "\n".join(found) or "nothing found"

    def read_file(self, file: str) -> str:
        return self.files[file]

    def write_patch(self, file: str, old: str, new: str) -> str:
        """Replaces a line."""
        content = self.files[file]
        self.files[file] = content.replace(old, new)
        return f"{content.count(old)} line of {file} changed"

    def run_check(self) -> str:
        """Computes every total anew."""
        wrong = [
            f"{file}:{number}: {row['ship']}: {row['days']} days at {row['fee']} are not {row['total']}"
            for file, content in sorted(self.files.items())
            for number, row in enumerate(csv.DictReader(content.splitlines()), 2)
            if int(row["days"]) * int(row["fee"]) != int(row["total"])
        ]
        return "\n".join([*wrong, f"{len(self.files)} ledgers checked, {len(wrong)} totals wrong"])

    def finish(self) -> str:
        return f"closed: {self.run_check().splitlines()[-1]}"


def _line(berth: str, ship: str, rng: random.Random) -> str:
    days, fee = rng.randint(2, 14), rng.choice((30, 40, 45, 50, 65, 80))
    return f"{berth},{ship},{days},{fee},{days * fee}"
