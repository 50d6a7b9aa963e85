"""Filings and quotes as they lie in a folder, and what code finds in them without a model."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path

_FIGURE = re.compile(r"\$(\d[\d,]*(?:\.\d+)?)(?: (thousand|million|billion))?")
_SCALES = {"": 1.0, "thousand": 1e3, "million": 1e6, "billion": 1e9}
_PARAGRAPH = re.compile(r"\[(\d+)\] (.*)")


@dataclass(frozen=True)
class Filing:
    """One filing.

    Attributes:
        released: minutes after midnight.
        paragraphs: by their numbers.
    """

    company: str
    ticker: str
    released: int
    paragraphs: dict[int, str]

    @property
    def text(self) -> str:
        return "\n".join(f"[{number}] {text}" for number, text in self.paragraphs.items())

    @property
    def citations(self) -> list[str]:
        """The amounts of money in it, as they are written, each after the number of its paragraph."""
        found = [(number, match[0]) for number, text in self.paragraphs.items() for match in _FIGURE.finditer(text)]
        return list(dict.fromkeys(f"[{number}] {figure}" for number, figure in found))


@dataclass(frozen=True)
class Market:
    """What the quotes say of a share since its filing.

    Attributes:
        before, last: price at the last quote before the filing, and at the last of all.
        average: price since the filing, weighted by volume.
        volume_ratio: shares a quote since the filing by those before.
    """

    before: float
    last: float
    average: float
    volume_ratio: float

    @property
    def move(self) -> float:
        """Change since the filing, as a fraction."""
        return self.last / self.before - 1


def read_filing(path: Path) -> Filing:
    """A text file: lines ``Company:``, ``Ticker:`` and ``Released:``, then paragraphs that begin with ``[1]``…

    Raises:
        ValueError: it is something else; the message says where.
    """
    head: dict[str, str] = {}
    paragraphs: dict[int, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := _PARAGRAPH.fullmatch(line):
            paragraphs[int(match[1])] = match[2]
        elif ": " in line and not paragraphs:
            name, value = line.split(": ", 1)
            head[name] = value
    missing = [name for name in ("Company", "Ticker", "Released") if name not in head]
    if missing or not paragraphs:
        raise ValueError(f"{path}: no {' and no '.join(missing or ['paragraph that begins with [1]'])}")
    try:
        released = _minutes(head["Released"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return Filing(head["Company"], head["Ticker"], released, paragraphs)


def read_market(path: Path, filing: Filing) -> Market:
    """From a CSV with columns time, ticker, price, volume.

    Raises:
        ValueError: it is something else, or has no quote before or after the filing.
    """
    before: list[tuple[float, int]] = []
    after: list[tuple[float, int]] = []
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        try:
            for row in rows:
                if row["ticker"] == filing.ticker:
                    (before if _minutes(row["time"]) < filing.released else after).append(_quote(row))
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise ValueError(f"{path}, line {rows.line_num}: no time, ticker, price and volume of a trade") from error
    if not before or not after or not sum(volume for _, volume in after) or not sum(volume for _, volume in before):
        raise ValueError(f"{path}: no trade of {filing.ticker} before, or none after its filing")
    traded = sum(volume for _, volume in after)
    return Market(
        before=before[-1][0],
        last=after[-1][0],
        average=sum(price * volume for price, volume in after) / traded,
        volume_ratio=(traded / len(after)) / (sum(volume for _, volume in before) / len(before)),
    )


def amount(figure: str) -> float:
    """Dollars of a figure as filings write it.

    Raises:
        ValueError: it is none.
    """
    match = _FIGURE.fullmatch(figure)
    if match is None:
        raise ValueError(f"{figure!r} is no amount such as $412.6 million")
    return float(match[1].replace(",", "")) * _SCALES[match[2] or ""]


def _quote(row: dict[str, str]) -> tuple[float, int]:
    price, volume = float(row["price"]), int(row["volume"])
    if not (0 < price < math.inf and 0 <= volume < 1e15):
        raise ValueError(f"no trade: {volume} at {price}")
    return price, volume


def _minutes(clock: str) -> int:
    match = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", clock)
    if match is None:
        raise ValueError(f"{clock!r} is no time such as 09:40")
    return int(match[1]) * 60 + int(match[2])
