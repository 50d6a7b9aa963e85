"""Memory: how many KV blocks are planned, what they take, and what tiles do to a tensor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from support.engines import OpenEngine, assert_idle
from support.k_quants import quantize
from support.tiny import MATRIX_TYPES, write_tiny_model
from ultrafast import Engine, _native
from ultrafast.engine import engine as engine_module
from ultrafast.engine.memory import kv_block_bytes, plan_kv_blocks, weight_bytes
from ultrafast.engine.native import KV_BLOCK, REFERENCE, NativeModel, dequantize
from ultrafast.engine.sequence import Sequence
from ultrafast.errors import ModelFileError, ResourceError
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import ModelShape
from ultrafast.types import GenerateRequest, SamplingParams

MIB = 2**20


def plan(path: Path, *, available: int, isa: str = "scalar", context: int = 512, num_slots: int = 32) -> int:
    with GgufFile(path) as file:
        shape = ModelShape.from_gguf(file)
        return plan_kv_blocks(file, shape, isa=isa, context=context, num_slots=num_slots, available=available)


def shape_of(path: Path) -> ModelShape:
    with GgufFile(path) as file:
        return ModelShape.from_gguf(file)


def test_a_full_context_for_every_slot_when_there_is_room(tiny_model_path: Path) -> None:
    assert plan(tiny_model_path, available=2**40) == 32 * 8
    assert plan(tiny_model_path, available=2**40, context=65, num_slots=3) == 3 * 2


def test_a_draft_model_takes_weights_and_blocks_too(tiny_model_path: Path) -> None:
    shape = shape_of(tiny_model_path)
    with GgufFile(tiny_model_path) as file:
        available = 2 * weight_bytes(file, shape, isa="scalar") + round(20.5 * 2 * kv_block_bytes(shape) / 0.6)
        planned = plan_kv_blocks(
            file, shape, isa="scalar", context=512, num_slots=32, available=available, draft=(file, shape)
        )
    assert planned == 20


def test_what_fits_when_there_is_less(tiny_model_path: Path) -> None:
    block = kv_block_bytes(shape_of(tiny_model_path))
    with GgufFile(tiny_model_path) as file:
        weights = weight_bytes(file, shape_of(tiny_model_path), isa="scalar")
        tensors = [tensor for name, tensor in file.tensors.items() if name != "rope_freqs.weight"]
        assert weights == sum(tensor.nbytes for tensor in tensors)
    for num_blocks in (8, 20, 100):
        assert plan(tiny_model_path, available=weights + round((num_blocks + 0.5) * block / 0.6)) == num_blocks
    with pytest.raises(ResourceError):
        plan(tiny_model_path, available=weights + round(7.9 * block / 0.6))


def test_too_little_memory_is_told_in_numbers(tiny_model_path: Path) -> None:
    for available in (100_000, 0, -(2**40)):
        with pytest.raises(ResourceError, match=r"tiny.gguf needs \d+ MiB .* 512 tokens; .* MiB are available"):
            plan(tiny_model_path, available=available)


def test_the_engine_heeds_the_memory_there_is(tiny_model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = engine_module.detect()

    def leave(memory_bytes: int) -> None:
        monkeypatch.setattr(engine_module, "detect", lambda: replace(machine, memory_bytes=memory_bytes))

    leave(100_000)
    with pytest.raises(ResourceError, match="smaller context"):
        Engine(tiny_model_path)
    leave(100_000 + 20 * kv_block_bytes(shape_of(tiny_model_path)))
    with Engine(tiny_model_path, threads=1) as engine:
        ask = GenerateRequest([5] * 300, SamplingParams(max_tokens=100, ignore_eos=True))
        sequences = [engine.add(ask) for _ in range(5)]
        engine.step()
        assert 1 <= engine.stats()["running"] < 5  # blocks are fewer than slots: some wait
        while engine.has_work:
            engine.step()
        assert [sequence.usage.completion_tokens for sequence in sequences] == [100] * 5
        assert_idle(engine)


@pytest.mark.parametrize("head_dim", [2, 6, 10, 16, 24, 80])
def test_kv_blocks_are_as_large_as_planned(tmp_path: Path, head_dim: int) -> None:
    """f16 keys [64][head_dim] and values [64][head_dim rounded up to 16] of every layer and head."""
    path = tmp_path / "model.gguf"
    write_tiny_model(path, hidden=32, heads=2, kv_heads=1, head_dim=head_dim, layers=3, type=Type.F32)
    padded = (head_dim + 15) // 16 * 16
    assert kv_block_bytes(shape_of(path)) == KV_BLOCK * 3 * 1 * (head_dim + padded) * 2


@pytest.mark.parametrize("isa", ["scalar", REFERENCE])
def test_the_last_block_is_inside_the_cache(open_engine: OpenEngine, isa: str) -> None:
    """Fill every KV block: a layout larger than planned would end in a fault, overlapping blocks in nonsense."""
    engine = open_engine(isa=isa, threads=1, head_dim=10, type=Type.F32, context=64, layers=3, cache_mib=0)
    prompts = [[7 + i] * 59 for i in range(engine.num_slots)]
    expected = [engine.generate(prompt, max_tokens=5, ignore_eos=True).token_ids for prompt in prompts]
    params = SamplingParams(max_tokens=5, ignore_eos=True)
    tokens: dict[Sequence, list[int]] = {engine.add(GenerateRequest(prompt, params)): [] for prompt in prompts}
    tokens |= {engine.add(GenerateRequest(prompt, params, "ultrafast")): [] for prompt in prompts[:4]}
    deltas = engine.step()
    assert engine.stats()["free_blocks"] == 0
    while deltas or engine.has_work:
        for sequence, delta in deltas:
            tokens[sequence] += delta.token_ids
        deltas = engine.step()
    assert list(tokens.values()) == expected + expected[:4]


# ---- tiles ----------------------------------------------------------------------------------------------------------


def random_tensor(type: Type, rows: int, cols: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Every bit pattern there is: scales that are subnormal, negative, zero, infinite or no number at all."""
    block, size = gguf.GGML_QUANT_SIZES[type]
    return np.random.default_rng(seed).integers(0, 256, (rows, cols // block * size), np.uint8)


@pytest.mark.parametrize("through_tiles", [True, False])
@pytest.mark.parametrize("type", MATRIX_TYPES, ids=str)
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (16, 2), (17, 1), (50, 3), (3, 10)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the reference package, at infinite scales
def test_tiles_change_no_value(type: Type, rows: int, blocks: int, through_tiles: bool) -> None:
    cols = blocks * max(gguf.GGML_QUANT_SIZES[type][0], 32)
    data = random_tensor(type, rows, cols)
    expected = gguf.dequantize(data, type).astype(np.float32)
    actual = _native.dequantize(int(type), rows, cols, data.reshape(-1), through_tiles)
    assert actual.shape == expected.shape
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.isnan(actual), ~numbers)
    assert np.array_equal(actual[numbers].view(np.uint32), expected[numbers].view(np.uint32))


@pytest.mark.parametrize("type", [Type.Q5_0, Type.Q5_1, Type.Q4_K, Type.Q5_K, Type.Q6_K], ids=str)
def test_quantised_weights_come_back(type: Type) -> None:
    """No bit is in the wrong place: what a quantiser rounds, the tiles give back to within its steps."""
    values = np.random.default_rng(2).standard_normal((40, 512)).astype(np.float32)
    values[:, ::32] *= 4  # so that blocks, and rows, differ
    data = quantize(values, type)
    assert np.array_equal(_native.dequantize(int(type), 40, 512, data.reshape(-1), True), gguf.dequantize(data, type))
    error = np.abs(gguf.dequantize(data, type) - values).mean()
    assert error < {Type.Q4_K: 0.2, Type.Q6_K: 0.05}.get(type, 0.1)


@pytest.mark.parametrize("type", [Type.F32, Type.F16, Type.BF16], ids=str)
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 3), (33, 37)])
def test_plain_tensors_may_have_any_size(type: Type, rows: int, cols: int) -> None:
    values = np.random.default_rng(1).standard_normal((rows, cols)).astype(np.float32)
    data = gguf.quantize(values, type)
    assert np.array_equal(
        dequantize(int(type), rows, cols, data.view(np.uint8).reshape(-1)), gguf.dequantize(data, type)
    )


def test_every_half_precision_number() -> None:
    data = np.arange(2**16, dtype=np.uint16)
    brain = (data.astype(np.uint32) << 16).view(np.float32)
    for kind, expected in ((Type.F16, data.view(np.float16).astype(np.float32)), (Type.BF16, brain)):
        actual = dequantize(int(kind), 1, 2**16, data.view(np.uint8))
        assert np.array_equal(actual[0], expected, equal_nan=True)


@pytest.mark.parametrize(
    ("rows", "cols", "size"), [(2, 32, 35), (2, 32, 37), (1, 33, 18), (0, 32, 0), (1, 0, 0), (2**31, 32, 18)]
)
def test_a_tensor_of_the_wrong_size_is_refused(rows: int, cols: int, size: int) -> None:
    with pytest.raises(ValueError, match="tensor: "):
        dequantize(int(Type.Q4_0), rows, cols, np.zeros(size, np.uint8))


@pytest.mark.parametrize(("type", "block"), [(Type.Q5_1, 32), (Type.Q4_K, 256), (Type.Q5_K, 256), (Type.Q6_K, 256)])
def test_rows_of_broken_blocks_are_refused(type: Type, block: int) -> None:
    with pytest.raises(ValueError, match=f"tensor: columns are not a multiple of {block}$"):
        dequantize(int(type), 1, block + block // 2, np.zeros(4096, np.uint8))


# ---- a machine that refuses -----------------------------------------------------------------------------------------

_STARVED = """
import resource, sys
from ultrafast import Engine
from ultrafast.errors import ModelFileError, ResourceError
Engine(sys.argv[1], threads=1).close()
used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]), -1))
try:
    Engine(sys.argv[1], threads=int(sys.argv[3]))
except ResourceError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("room", "threads"), [(20 * MIB, 1), (45 * MIB, 1), (1000 * MIB, 500)])
def test_an_address_space_that_ends_is_told(tmp_path: Path, room: int, threads: int) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", layers=8, hidden=512, ffn=1024, context=8192)
    command = [sys.executable, "-c", _STARVED, str(path), str(room), str(threads)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "the system refused" in answer.stdout
    assert answer.stderr == ""


@pytest.mark.parametrize("isa", ["scalar", REFERENCE])
@pytest.mark.parametrize("keep", [0.99, 0.5, 0.0])
def test_a_file_cut_while_it_is_loaded_is_an_error(
    tiny_model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isa: str, keep: float
) -> None:
    path = tmp_path / "model.gguf"
    shutil.copy(tiny_model_path, path)

    class CutFirst(NativeModel):
        def __init__(self, *args: Any, **options: Any) -> None:
            os.truncate(path, int(path.stat().st_size * keep))
            super().__init__(*args, **options)

    monkeypatch.setattr("ultrafast.engine.engine.NativeModel", CutFirst)
    with pytest.raises(ModelFileError, match="became shorter while it was read"):
        Engine(path, isa=isa)
