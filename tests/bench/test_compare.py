"""Two runs side by side: real differences are told, noise is not, and what cannot be compared is said."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ultrafast.bench import compare as comparing
from ultrafast.bench.compare import Comparison, Verdict, compare
from ultrafast.bench.records import document, read_document, write_document
from ultrafast.errors import ConfigError
from ultrafast.report.page import Page

Columns = Mapping[str, Any]


def cell(columns: Columns, tier: str | None = "fast", load: Any = "16 at once") -> dict[str, Any]:
    return {"tier": tier, "prompt_tokens": 1000, "output_tokens": 200, "load": load, "calls": 9, "columns": columns}


def run(*cells: dict[str, Any], **setup: Any) -> dict[str, Any]:
    return document("api", setup, {"cells": list(cells)})


def only(comparison: Comparison) -> dict[str, Any]:
    (changes,) = comparison.cells.values()
    return {change.column: change for change in changes}


def test_faster_is_less_time_and_more_speed() -> None:
    random = np.random.default_rng(0)
    first = {"ttft_s": random.lognormal(0, 0.1, 40), "output_speed": random.lognormal(4, 0.1, 40)}
    second = {"ttft_s": random.lognormal(0, 0.1, 50) / 2, "output_speed": random.lognormal(4, 0.1, 50) * 2}
    changes = only(compare(run(cell(first)), run(cell(second))))
    assert {change.verdict for change in changes.values()} == {Verdict.FASTER}
    assert changes["ttft_s"].ratio.low < 0.5 < changes["ttft_s"].ratio.high
    assert changes["output_speed"].ratio.low < 2 < changes["output_speed"].ratio.high
    assert changes["ttft_s"].ratio.value == np.median(second["ttft_s"]) / np.median(first["ttft_s"])
    back = only(compare(run(cell(second)), run(cell(first))))
    assert {change.verdict for change in back.values()} == {Verdict.SLOWER}


def test_noise_is_told_apart_in_one_of_20_runs_at_most() -> None:
    random = np.random.default_rng(1)
    columns = [{str(i): random.lognormal(0, 0.5, n) for i in range(200)} for n in (15, 20)]
    comparison = compare(*(run(cell(column)) for column in columns))
    assert comparison.count(Verdict.UNCLEAR) >= 186  # of 200; 190 expected at least
    assert comparison.count(Verdict.UNCLEAR) < 200


def test_too_few_calls_decide_nothing() -> None:
    first, second = run(cell({"e2e_s": [1.0] * 4})), run(cell({"e2e_s": [9.0] * 40}))
    assert only(compare(first, second))["e2e_s"].verdict is Verdict.TOO_FEW
    assert "too few calls to tell" in comparing.text(compare(first, second))


def test_calls_that_never_ended_count() -> None:
    times = list(np.linspace(1, 2, 20))
    ended, half, none = (run(cell({"e2e_s": column})) for column in (times, [*times, *["inf"] * 30], ["inf"] * 20))
    assert only(compare(ended, half))["e2e_s"].verdict is Verdict.SLOWER
    assert only(compare(half, ended))["e2e_s"].verdict is Verdict.FASTER
    assert only(compare(none, none))["e2e_s"].verdict is Verdict.UNCLEAR
    assert "never" in comparing.text(compare(ended, half))


def test_what_was_not_measured_is_left_out() -> None:
    values = [1.0, None] * 10
    changes = only(compare(run(cell({"a": [None] * 9, "b": values})), run(cell({"a": [None] * 9, "b": values}))))
    assert list(changes) == ["b"]
    assert changes["b"].before.n == 10
    one_sided = only(compare(run(cell({"b": values})), run(cell({"b": [None]}))))
    assert one_sided["b"].verdict is Verdict.TOO_FEW


def test_cells_meet_by_what_was_asked() -> None:
    columns = {"e2e_s": [1.0] * 9}
    load = {"kind": "poisson", "rate": 2.5}
    first = run(cell(columns), cell(columns, tier=None, load=load), cell(columns, tier="flex"), model="a")
    second = run(cell(columns, tier=None, load=load), cell(columns), cell(columns, load="1 at once"), model="b")
    comparison = compare(first, second)
    assert len(comparison.cells) == 2
    assert [name.partition(" · ")[0] for name in comparison.only_before] == ["flex"]
    assert comparison.only_after == ["fast · 1,000 tokens in, 200 out · 1 at once"]
    assert list(comparison.differences) == ["model: a → b"]
    with pytest.raises(ConfigError, match=r"no cell in common.*flex"):
        compare(run(cell(columns, tier="flex")), run(cell(columns)))


def test_cells_that_are_not_sound_are_named() -> None:
    columns = {"e2e_s": [1.0, 2.0] * 9}
    comparison = compare(run(cell(columns)), run({**cell(columns), "doubts": ["the client was late"]}))
    assert "second run: the client was late" in comparing.text(comparison)


def test_reports_say_it_all() -> None:
    columns = {"e2e_s": [1.0, 2.0] * 9, "ttft_s": [0.1, 0.2] * 9, "<odd>": [1.0] * 9}
    comparison = compare(run(cell(columns), model="<a>"), run(cell(columns), cell(columns, tier="flex"), model="b"))
    text = comparing.text(comparison)
    page = Page("Two runs", {})
    comparing.add_to(page, comparison)
    for report in (text, page.html().replace("&lt;", "<").replace("&gt;", ">")):
        for piece in ("fast · 1,000 tokens in", "whole call", "<odd>", "no clear difference", "by chance", "<a> → b"):
            assert piece in report
        assert "Only in the second run: flex" in report


def test_documents_that_were_written_are_compared(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        write_document(path, run(cell({"e2e_s": np.array([1.0, np.inf, np.nan] * 9)})))
    change = only(compare(*(read_document(path, "api") for path in paths)))["e2e_s"]
    assert change.before.n == 18


@pytest.mark.parametrize("cells", [None, {}, [1], [{"tier": "a"}], [cell({"e2e_s": ["x"]})], [cell({"e2e_s": 1})]])
def test_other_documents_are_refused(cells: Any) -> None:
    with pytest.raises(ConfigError, match="the second document has no cells of calls"):
        compare(run(cell({"e2e_s": [1.0]})), {"results": {"cells": cells}})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*cell({}), "e2e_s"]), inner),
    max_leaves=12,
)


@given(change=st.dictionaries(st.sampled_from([*cell({})]), json_values, max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_cell_is_compared_or_refused(change: dict[str, Any]) -> None:
    doc = {"setup": {}, "results": {"cells": [{**cell({"e2e_s": [1.0, 2.0]}), **change}]}}
    with contextlib.suppress(ConfigError):
        assert comparing.text(compare(doc, doc))
