"""Models executed tile by tile on a mesh, against the engine's plain fp32 path and the golden data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given
from hypothesis import strategies as st

from support.tiny import write_tiny_model
from ultrafast import Engine
from ultrafast.errors import ConfigError, ModelFileError
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import ModelShape
from ultrafast.wafer import catalog
from ultrafast.wafer.mesh.decoder import Decoder
from ultrafast.wafer.mesh.layout import spread
from ultrafast.wafer.mesh.numbers import Floats, Numbers, total
from ultrafast.wafer.mesh.operations import Operation, Operations
from ultrafast.wafer.mesh.run import Simulation
from ultrafast.wafer.mesh.timing import Clock

GOLDEN = Path(__file__).parent.parent / "golden/golden.json"
IDS = np.random.default_rng(1).integers(0, 288, 40).tolist()
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "nine heads on three": {"hidden": 288, "heads": 9, "kv_heads": 3, "ffn": 96, "layers": 1},
    "a kv head a head": {"kv_heads": 4, "tied": False},
    "odd sizes": {"hidden": 40, "heads": 4, "kv_heads": 1, "ffn": 72, "vocab": 300, "type": Type.F32},
    "partial rope": {"rope_dim": 8},
    "biases": {"qkv_bias": True},
    "qwen2": {"architecture": "qwen2"},
}


def on_mesh(path: Path, rows: int, columns: int, numbers: Numbers, ids: list[int] = IDS) -> Floats:
    with GgufFile(path) as file:
        decoder = Decoder(file, rows, columns, numbers=numbers)
    decoder.restart(len(ids))
    # A prompt at once, then token by token.
    return np.concatenate([decoder.forward(ids[:-3]), *(decoder.forward([one]) for one in ids[-3:])])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 7)])
def test_logits_are_those_of_the_reference_but_for_16_bits(tmp_path: Path, name: str, rows: int, columns: int) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", **MODELS[name])
    with Engine(path, isa="reference") as engine:
        expected = engine.logits(IDS)
    found = on_mesh(path, rows, columns, Numbers())
    assert np.abs(found - expected).max() < 0.2
    assert np.abs(found - expected).mean() < 0.01


def test_more_bits_are_nearer(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", layers=3)
    with Engine(path, isa="reference") as engine:
        expected = engine.logits(IDS)
    errors = [
        float(np.square(on_mesh(path, 5, 4, numbers) - expected).mean())
        for numbers in (Numbers("fp32", "fp32"), Numbers("fp32", "fp16"), Numbers("fp16", "fp16"))
    ]
    assert errors == sorted(errors)
    assert errors[0] < errors[-1]


def test_the_shape_of_the_mesh_changes_rounding_only(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "model.gguf")
    first, *others = [on_mesh(path, *size, Numbers()) for size in ((1, 1), (2, 9), (16, 16), (40, 3))]
    assert all(0 < np.abs(first - other).mean() < 0.01 for other in others)


def test_partial_sums_are_added_in_the_order_of_the_tree() -> None:
    """Three PEs sum up in the middle, the left one first: 2048 + 1 is 2048 in halves, 2048 + (1 + 1) would not be."""
    halves = np.array([[1.0], [2048.0], [1.0]], np.float16)
    assert total(halves).tolist() == [2048.0]
    assert total(halves.astype(np.float32)).tolist() == [2050.0]


def test_accumulating_in_halves_rounds_each_multiply_add() -> None:
    x, weights = np.array([[[2048.0, 1.0, 1.0]]], np.float16), np.ones((1, 3, 1), np.float32)
    assert Numbers("fp16").multiply(x, weights).tolist() == [[2048.0]]
    assert Numbers("fp32").multiply(x, weights).tolist() == [[2050.0]]


def test_the_embedded_model_gives_the_golden_tokens(embedded_model_path: Path) -> None:
    prompts = json.loads(GOLDEN.read_text(encoding="utf-8"))["prompts"]
    prompt = next(one for one in prompts if one["name"] == "chat_empty_system")
    expected = prompt["greedy_ids"][:4]
    assert min(prompt["margins"][:4]) > 1  # no near-tie
    simulation = Simulation(embedded_model_path, 16, 16, catalog.device("wse-3"))
    steps = list(simulation.steps(prompt["prompt_ids"], len(expected)))
    assert [step.token for step in steps] == expected
    assert simulation.decoder.tile_bytes < simulation.room_bytes
    for step in steps:
        assert step.predicted == pytest.approx(step.cycles, rel=0.05)
        assert simulation.planned_cycles(step.context) == pytest.approx(step.cycles, rel=0.25)


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (8, 5), (16, 16), (24, 32)])
def test_the_closed_forms_hold_for_every_operation(embedded_model_path: Path, rows: int, columns: int) -> None:
    with GgufFile(embedded_model_path) as file:
        shape = ModelShape.from_gguf(file)
    operations = Operations(shape, Clock(rows, columns), 2)
    short, long = operations.layer(10), operations.layer(5_000)
    for one in (*short, *long, *operations.head()):
        assert one.predicted == pytest.approx(one.timing.cycles, rel=0.05), one.name
    assert cycles(short) < cycles(long)


def cycles(operations: list[Operation]) -> float:
    return sum(one.timing.cycles for one in operations)


@given(size=st.integers(0, 500), parts=st.integers(1, 70))
def test_a_vector_is_spread_evenly(size: int, parts: int) -> None:
    index = spread(size, parts)
    assert index[index >= 0].tolist() == list(range(size))
    lengths = (index >= 0).sum(1)
    assert lengths.max() - lengths.min() <= 1


def test_what_is_refused(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", context=64)
    wafer = catalog.device("wse-3")
    with pytest.raises(ConfigError, match="NVIDIA H100 SXM is no mesh"):
        Simulation(path, 4, 4, catalog.device("h100"))
    with pytest.raises(ConfigError, match="larger than Cerebras WSE-3"):
        Simulation(path, 4, 5_000, wafer)
    simulation = Simulation(path, 4, 4, wafer)
    with pytest.raises(ConfigError, match="65 positions; Tiny was made for 64 at most"):
        next(simulation.steps([1] * 60, 5))
    with pytest.raises(ConfigError, match="0 tokens and 5 more"):
        next(simulation.steps([], 5))
    other = write_tiny_model(tmp_path / "other.gguf", architecture="qwen3")
    with pytest.raises(ModelFileError, match="qwen3 has norms of queries and keys, which are not executed on a mesh"):
        Simulation(other, 4, 4, wafer)
