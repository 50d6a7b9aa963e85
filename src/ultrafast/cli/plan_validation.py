"""Published measurements beside what the planner predicts of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ultrafast.wafer.cost.published import read_records
from ultrafast.wafer.cost.validate import Row, median_error, of, rows

_ROLES = ("fitted", "held out", "assumed", "ceiling", "not covered")


def text(path: Path | None, *, as_json: bool) -> str:
    """The table, and what it says in a few numbers.

    Raises:
        ConfigError: the file cannot be read or is none of that form.
    """
    all_rows = rows(None if path is None else read_records(path))
    if as_json:
        return json.dumps([_plain(row) for row in all_rows], indent=1)
    lines = [f"{'record':42}{'measured':>11}{'predicted':>11}{'error':>8}  role"]
    lines += [_line(row) for row in all_rows]
    return "\n".join([*lines, "", *_summary(all_rows)])


def _line(row: Row) -> str:
    figures = f"{row.record.id[:41]:42}{row.record.value:>11,.1f}"
    if row.predicted is None:
        return f"{figures}{'':>11}{'':>8}  {row.role}: {row.note}"
    note = f": {row.note}" if row.note else ""
    return f"{figures}{row.predicted:>11,.1f}{row.error:>+8.0%}  {row.role}{note}"


def _summary(all_rows: Sequence[Row]) -> list[str]:
    lines = []
    for role in _ROLES:
        some = of(all_rows, role)
        if not some:
            continue
        if role == "not covered":
            lines.append(f"{role}: {len(some)} records")
            continue
        worst = max(some, key=lambda row: abs(row.error))
        lines.append(
            f"{role}: {len(some)} records, median error {median_error(some):.1%}, worst {worst.error:+.0%} "
            f"({worst.record.id})"
        )
    return lines


def _plain(row: Row) -> dict[str, Any]:
    body: dict[str, Any] = {"record": msgspec.to_builtins(row.record), "predicted": row.predicted, "role": row.role}
    return body | {"error": None if row.predicted is None else row.error, "note": row.note}
