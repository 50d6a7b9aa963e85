"""The embedded model requantised, all five and six-bit formats in one file, against fp32 arithmetic on it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from support.tiny import read_weights, write_model
from ultrafast import Engine
from ultrafast.engine.native import REFERENCE, supported_isas

ROOT = Path(__file__).parent.parent
PROMPTS = json.loads((ROOT / "tests/golden/golden.json").read_text(encoding="utf-8"))["prompts"]
LONG_IDS: list[int] = next(prompt["prompt_ids"] for prompt in PROMPTS if prompt["name"] == "long_text")[:600]
NUM_LAYERS = 30
NEAR_TIE = 0.02  # between the reference's best two tokens: rounding decides

# Rows of 576 inputs are not whole blocks of 256, as those formats need; rows of 1,536, of ffn_down, are.
TYPES = {f"blk.{i}.ffn_down": (Type.Q4_K, Type.Q5_K, Type.Q6_K)[i % 3] for i in range(NUM_LAYERS)} | {
    "ffn_gate": Type.Q5_1,
    "attn_k": Type.Q5_1,
    "attn_v": Type.Q8_0,
    "token_embd": Type.Q5_1,
}


@pytest.fixture(scope="module")
def requantised(embedded_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "five-bits.gguf"
    fields = gguf.GGUFReader(embedded_model_path).fields
    metadata = {name: field.contents() for name, field in fields.items() if not name.startswith("GGUF.")}
    del metadata["general.file_type"], metadata["general.quantization_version"]
    write_model(path, metadata, read_weights(embedded_model_path), Type.Q5_0, TYPES)
    kinds = {tensor.tensor_type for tensor in gguf.GGUFReader(path).tensors}
    assert kinds == {Type.F32, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.Q4_K, Type.Q5_K, Type.Q6_K}
    return path


def test_logits_are_close_to_fp32(requantised: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    metrics = importlib.import_module("accuracy_metrics")
    with Engine(requantised, isa=REFERENCE) as engine:
        expected = engine.logits(LONG_IDS)
    best = np.partition(expected, -2, axis=1)[:, -2:]
    margins = best[:, 1] - best[:, 0]
    for isa in supported_isas():
        ids = LONG_IDS[:24] if isa == "scalar" else LONG_IDS  # slow, and equal to the others bit for bit
        with Engine(requantised, isa=isa) as engine:
            logits = engine.logits(ids)
        divergence = metrics.divergence(expected[: len(ids)], logits)
        print(isa, divergence)
        assert divergence.mean_kl <= 1e-5
        decided = margins[: len(ids)] > NEAR_TIE
        assert (logits.argmax(1) == expected[: len(ids)].argmax(1))[decided].all()
