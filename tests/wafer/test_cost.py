"""The cost models: what they must do whatever the constants, and how near they come to what was published."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ultrafast.errors import ConfigError
from ultrafast.wafer import catalog
from ultrafast.wafer.cost import fit, mesh, roofline, validate, wafer
from ultrafast.wafer.cost.constants import constant, fitted, trying
from ultrafast.wafer.cost.published import records
from ultrafast.wafer.cost.roofline import Group
from ultrafast.wafer.cost.speculation import Speculation
from ultrafast.wafer.cost.wafer import Regions
from ultrafast.wafer.precision import Precision

LLAMA = catalog.model("llama-3.1-8b")
WSE3 = catalog.device("wse-3")
BF16 = Precision.parse("bf16")


@pytest.fixture(scope="module")
def rows() -> list[validate.Row]:
    return validate.rows()


def mean_error(rows: list[validate.Row]) -> float:
    return statistics.mean(abs(row.error) for row in rows)


def test_the_constants_in_the_file_are_those_that_the_fit_finds() -> None:
    found = fit.fit_all()
    assert found.keys() == fitted().keys()
    for name, one in found.items():
        assert one.value == pytest.approx(fitted()[name].value, rel=5e-3, abs=1e-9), name
        assert one.fitted_on == fitted()[name].fitted_on


def test_what_was_published_of_wafers_is_predicted(rows: list[validate.Row]) -> None:
    decode = validate.of(rows, "fitted", prefix="waferllm-decode-")
    prefill = validate.of(rows, "fitted", prefix="waferllm-prefill-")
    whole = validate.of(rows, "held out", prefix="waferllm-e2e-")
    assert [len(part) for part in (decode, prefill, whole)] == [12, 12, 8]
    assert mean_error(decode) <= 0.03
    assert mean_error(prefill) <= 0.08
    assert mean_error(whole) <= 0.15


@pytest.mark.parametrize("size", ["8b", "13b", "34b", "72b"])
def test_a_model_left_out_of_the_fit_is_predicted_too(size: str) -> None:
    group = next(group for group in fit.GROUPS if "wafer.step_cycles" in group.start)
    on = [record for record in records() if group.on(record)]
    left_out = [record for record in on if f"-{size}-" in record.id]
    assert len(left_out) == 3
    with trying(fit.solve(group, [record for record in on if record not in left_out])):
        assert max(abs(validate.row(record).error) for record in left_out) <= 0.06


def test_what_was_published_of_gpus_is_predicted(rows: list[validate.Row]) -> None:
    assert mean_error(validate.of(rows, "fitted", "held out", prefix="waferllm-a100")) <= 0.15


def test_what_no_constant_was_fitted_on_is_predicted(rows: list[validate.Row]) -> None:
    held_out = validate.of(rows, "held out")
    assert len(held_out) >= 30
    assert validate.median_error(held_out) <= 0.2


def test_ceilings_of_vendors_are_not_fitted_on(rows: list[validate.Row]) -> None:
    fitted_on = {name for one in fitted().values() for name in one.fitted_on.split()}
    assert not fitted_on & {row.record.id for row in rows if row.role == "ceiling"}
    assert len(validate.of(rows, "ceiling")) == 9
    assert all(row.note for row in rows if row.role in ("assumed", "not covered"))


def test_the_counts_are_those_of_the_published_form() -> None:
    """7 d + s + f instructions and 4 d d + 2 d s + 3 d f multiply-adds a PE, and ten all-reduces (wafer with MHA)."""
    side, context = 420, 4096
    shape = replace(LLAMA, num_kv_heads=LLAMA.num_heads)
    d, f, s = (-(-size // side) for size in (shape.hidden_size, shape.intermediate_size, context))
    work = mesh.decode(shape, 0, side, context)
    assert work.macs == 4 * d * d + 2 * d * s + 3 * d * f
    assert work.steps == 7 * d + s + f
    assert (work.hops, work.stages) == (10 * side, pytest.approx(10 * side**0.5, rel=0.03))  # of whole groups
    prompt = mesh.prefill(shape, 0, side, context)
    assert prompt.macs == side * (4 * d * d * s + 3 * d * f * s + 2 * s * s * d)
    assert prompt.shifts == 9 * side


def test_grouped_queries_cost_less_than_full_heads() -> None:
    full = replace(LLAMA, num_kv_heads=LLAMA.num_heads)
    assert mesh.decode(LLAMA, 0, 400, 1024).macs < mesh.decode(full, 0, 400, 1024).macs


def test_local_layers_see_their_window_only() -> None:
    shape = catalog.model("gpt-oss-120b")
    local, everywhere = mesh.attention(shape, 0, 16, 65536), mesh.attention(shape, 1, 16, 65536)
    assert local.macs * 100 < everywhere.macs


sides = st.integers(4, 900)


@given(side=sides, context=st.integers(0, 200_000), more=st.integers(1, 100_000))
@settings(deadline=None)
def test_more_context_never_costs_less(side: int, context: int, more: int) -> None:
    short, long = (mesh.decode(LLAMA, 0, side, length) for length in (context, context + more))
    assert (long.macs, long.steps) >= (short.macs, short.steps)
    assert (long.hops, long.stages) == (short.hops, short.stages)


@given(name=st.sampled_from(list(catalog.models())), wafers=st.integers(1, 40), context=st.integers(1, 100_000))
@settings(deadline=None, max_examples=40)
def test_parts_are_positive_and_a_batch_costs_more_than_one_and_less_than_many(
    name: str, wafers: int, context: int
) -> None:
    shape = catalog.model(name) if not name.startswith(("smollm2", "gemma3")) else LLAMA
    regions = Regions.equal(shape, WSE3, wafers)
    one = wafer.token_parts(shape, WSE3, regions, context)
    eight = wafer.token_parts(shape, WSE3, regions, context, batch=8)
    assert all(seconds > 0 for seconds in one.values())
    assert sum(one.values()) < sum(eight.values()) < 8 * sum(one.values()) + 1e-12


def test_wafers_are_joined_by_links() -> None:
    parts = {wafers: wafer.token_parts(LLAMA, WSE3, Regions.equal(LLAMA, WSE3, wafers), 1024) for wafers in (1, 4)}
    assert "wafer links" not in parts[1]
    assert parts[4]["wafer links"] == pytest.approx(3 * (WSE3["hop_latency_s"] + 4096 * 2 / 150e9))


def test_a_roofline_is_never_beaten() -> None:
    group = Group(catalog.device("h200"), 8)
    bound = roofline.bytes_of_step(LLAMA, BF16, 1024, 1) / 8 / group.device["memory_bytes_per_s"]
    assert sum(roofline.token_parts(LLAMA, group, BF16, 1024).values()) > bound


def test_experts_that_a_batch_touches() -> None:
    shape = catalog.model("gpt-oss-120b")
    reads = [roofline.bytes_of_step(shape, BF16, 0, batch) for batch in (1, 8, 100_000)]
    assert reads[0] == pytest.approx(BF16.active_bytes(shape))
    assert reads[0] < reads[1] < reads[2]
    assert reads[2] == pytest.approx(BF16.weight_bytes(shape) - 2 * shape.embedding.parameters, rel=1e-6)


def test_what_does_not_fit_says_by_how_much() -> None:
    with pytest.raises(ConfigError, match=r"141\.\d GB in bf16; 1 x NVIDIA H100 SXM have room for 72\.0 GB: 69\."):
        roofline.most_sequences(catalog.model("llama-3.1-70b"), Group(catalog.device("h100"), 1), BF16, 1024)


def test_speculation() -> None:
    assert Speculation.from_rate(0.0, 3).tokens_per_step == 1.0
    assert Speculation.from_rate(1.0, 3).tokens_per_step == 4.0
    assert Speculation.from_rate(0.5, 2).tokens_per_step == pytest.approx(1.75)
    step_cost = constant("speculation.draft_step_cost")
    assert Speculation(2.0, 1).token_s(0.01) == pytest.approx(0.005 * (1 + step_cost))
    for tokens, steps in ((0.5, 1), (3.0, 1), (1.0, 0)):
        with pytest.raises(ConfigError, match="draft"):
            Speculation(tokens, steps)
    with pytest.raises(ConfigError, match="acceptance"):
        Speculation.from_rate(1.5, 2)
