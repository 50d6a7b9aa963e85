"""Tables of outcomes: which user has which arm, and how the arms compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ultrafast.bench.ab import outcomes
from ultrafast.errors import ConfigError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(text)
    return path


def test_outcomes_from_a_table(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    users = [f"u{n}" for n in range(4000)]
    in_b = [outcomes.arm_of(user, "salt") == "B" for user in users]
    assert 0.47 < np.mean(in_b) < 0.53
    rows = [
        f"{u},{'yes' if random.random() < 0.4 + 0.1 * b else 'no'},{b},note" for u, b in zip(users, in_b, strict=True)
    ]
    path = write(tmp_path, "user,back,minutes,said\n" + "\n".join(rows))
    found = outcomes.compare_table(path, outcomes.read_table(path), unit="user", salt="salt", planned=2000)
    assert [outcome.name for outcome in found] == ["back", "minutes"]
    back = found[0]
    assert back.a.n + back.b.n == 4000
    assert back.difference.low < 0.1 < back.difference.high
    assert back.is_found
    assert back.always > back.difference.high - back.difference.value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no row"),
        ("user,x\n", "no row"),
        ("who,arm,x\na,A,1\n", "no user"),
        ("user,arm,x\na,C,1\n", "neither A nor B"),
        ("user,x\na,1\n", "neither A nor B"),
        ("user,arm,x\na,A,1\na,A,1\n", "twice"),
        ("user,arm,x\na,A,b\n", "no column"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=problem):
        outcomes.compare_table(path, outcomes.read_table(path), unit="user", salt=None, planned=10)


@given(st.binary(max_size=80) | st.text(alphabet='user,arm\nAB1"x;.-\r\0', max_size=80).map(str.encode))
def test_hostile_tables(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "hostile.csv"
    path.write_bytes(raw)
    try:
        rows = outcomes.read_table(path)
        found = outcomes.compare_table(path, rows, unit="user", salt=None, planned=10)
    except ConfigError:
        return
    assert found
