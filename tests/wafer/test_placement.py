"""Where models lie on wafers: nothing overlaps, nothing is lost, and what does not fit says by how much."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ultrafast.errors import ConfigError
from ultrafast.wafer import catalog
from ultrafast.wafer.placement import PATHS, PATHS_USED, Placement, least_wafers, place
from ultrafast.wafer.precision import Precision

WSE3 = catalog.device("wse-3")
BF16, FP8 = Precision.parse("bf16"), Precision.parse("fp8")


def check(placement: Placement) -> None:
    """Regions lie on their wafers, apart from each other; every layer has one; all weights and caches have room."""
    width, height = int(placement.device["grid_width"]), int(placement.device["grid_height"])
    by_wafer = Counter(region.wafer for region in placement.regions)
    assert set(by_wafer) <= set(range(placement.wafers))
    assert max(by_wafer.values()) - min(by_wafer.values()) <= 1
    assert [region.layer for region in placement.regions if region.role == "layer"] == [
        *range(placement.shape.num_layers)
    ]
    for wafer in by_wafer:
        here = [region for region in placement.regions if region.wafer == wafer]
        for number, one in enumerate(here):
            assert one.x >= 0
            assert one.y >= 0
            assert one.x + one.width <= width
            assert one.y + one.height <= height
            for other in here[:number]:
                apart = (
                    one.x + one.width <= other.x
                    or other.x + other.width <= one.x
                    or one.y + one.height <= other.y
                    or other.y + other.height <= one.y
                )
                assert apart
    assert placement.weight_bytes + placement.kv_bytes <= placement.room_bytes
    assert min(region.cores for region in placement.regions) == placement.cores
    held = sum(region.cores for region in placement.regions) * placement.room_bytes
    assert placement.precision.weight_bytes(placement.shape) <= held


@pytest.mark.parametrize(
    ("model", "precision", "wafers"),
    [("llama-3.1-8b", BF16, 1), ("llama-3.1-70b", BF16, 4)],  # as the vendor and its press say
)
def test_known_counts_of_wafers(model: str, precision: Precision, wafers: int) -> None:
    assert least_wafers(catalog.model(model), WSE3, precision, context=8192) == wafers


@given(
    name=st.sampled_from([name for name in catalog.models() if "smollm" not in name and "gemma" not in name]),
    users=st.integers(1, 64),
    context=st.integers(1, 4096),
    more=st.integers(0, 5),
)
@settings(deadline=None, max_examples=30)
def test_any_placement_is_sound(name: str, users: int, context: int, more: int) -> None:
    shape = catalog.model(name)
    least = least_wafers(shape, WSE3, FP8, context=context, users=users)
    placement = place(shape, WSE3, FP8, context=context, users=users, wafers=least + more)
    check(placement)
    if least > 1:
        with pytest.raises(ConfigError, match=r"too few|for each"):
            place(shape, WSE3, FP8, context=context, users=users, wafers=least - 1)


def test_a_token_moves_to_a_neighbour() -> None:
    placement = place(catalog.model("llama-3.1-8b"), WSE3, BF16, context=1024, wafers=1)
    for one, after in zip(placement.regions, placement.regions[1:], strict=False):
        touches_x = one.x <= after.x + after.width and after.x <= one.x + one.width
        touches_y = one.y <= after.y + after.height and after.y <= one.y + one.height
        assert touches_x
        assert touches_y


def test_hardly_a_core_is_left_over() -> None:
    assert place(catalog.model("llama-3.1-8b"), WSE3, BF16, context=1024, wafers=1).used_share > 0.98


def test_there_are_routes_enough() -> None:
    assert PATHS_USED < PATHS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context": 0}, "context is 0"),
        ({"context": -5}, "context is -5"),
        ({"context": 10_000_000}, "was made for 131,072"),
        ({"users": 0}, "users is 0"),
        ({"wafers": 0}, "wafers is 0"),
        ({"wafers": 3}, r"does not fit 3 x Cerebras WSE-3 .*\d kB too few"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        place(catalog.model("llama-3.1-70b"), WSE3, BF16, **{"context": 1024, "wafers": 4} | arguments)


def test_a_model_that_is_larger_than_all_wafers_allowed() -> None:
    with pytest.raises(ConfigError, match=r"does not fit 8 x .*too few"):
        least_wafers(catalog.model("kimi-k2"), WSE3, BF16, context=1024, most=8)


def test_a_model_with_more_layers_than_cores() -> None:
    device = replace(WSE3, figures={**WSE3.figures, "grid_width": replace(WSE3.figures["grid_width"], value=3.0)})
    device = replace(device, figures={**device.figures, "grid_height": replace(WSE3.figures["grid_width"], value=3.0)})
    with pytest.raises(ConfigError, match="have no PE for each"):
        place(catalog.model("llama-3.1-8b"), device, BF16, context=1024, wafers=1)
