"""The forward pass against an independent one in float64 (tests/support/numpy_llama.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType as Type

from support.numpy_llama import log_softmax, mean_kl, numpy_logits
from support.tiny import write_tiny_model
from ultrafast import Engine
from ultrafast.engine.native import REFERENCE, supported_isas

ODD = {"type": Type.F32, "hidden": 40, "heads": 4, "kv_heads": 1, "ffn": 72, "vocab": 300}

WIDE = {"hidden": 256, "ffn": 512, "layers": 1}  # rows of whole blocks of 256

MODELS: dict[str, dict[str, Any]] = {
    "f32": {"type": Type.F32},
    "f16": {"type": Type.F16},
    "bf16": {"type": Type.BF16},
    "q4_0": {"type": Type.Q4_0},
    "q4_1": {"type": Type.Q4_1},
    "q5_0": {"type": Type.Q5_0},
    "q5_1": {"type": Type.Q5_1},
    "q8_0": {"type": Type.Q8_0},
    "q4_k": WIDE | {"type": Type.Q4_K},
    "q5_k": WIDE | {"type": Type.Q5_K, "tied": False},
    "q6_k": WIDE | {"type": Type.Q6_K},
    "q4_k_m": WIDE | {"type": Type.Q4_K, "types": dict.fromkeys(("token_embd", "attn_v", "ffn_down"), Type.Q6_K)},
    "untied": {"tied": False},
    "mixed": {"types": {"attn_k": Type.F16, "ffn_up": Type.F32, "ffn_down": Type.Q8_0}},
    "mixed, untied": {"tied": False, "types": {"attn_q": Type.F32, "ffn_gate": Type.F32, "output.": Type.BF16}},
    "mixed, embedding in q4_1": {"types": {"attn_v": Type.Q8_0, "attn_output": Type.F16, "token_embd": Type.Q4_1}},
    "f16 norms": {"types": {"norm": Type.F16}},
    "one kv head": {"kv_heads": 1},
    "a kv head a head": {"kv_heads": 4},
    "nine heads on three": {"hidden": 288, "heads": 9, "kv_heads": 3, "ffn": 96, "layers": 1},
    "six heads on one": {"hidden": 96, "heads": 6, "kv_heads": 1},
    "qkv bias": {"qkv_bias": True},
    "partial rope": {"rope_dim": 8},
    "linear rope": {"rope_linear": 4.0},
    "llama 3 rope": {"rope_factors": [1.0, 1.0, 1.5, 2.0, 4.0, 8.0, 8.0, 8.0], "rope_base": 500_000.0},
    "wide heads": {"head_dim": 32},
    "heads of 10": ODD,
    "heads of 10, biased": ODD | {"qkv_bias": True, "rope_dim": 6, "tied": False},
    "heads of 2": {"type": Type.F32, "hidden": 32, "heads": 16, "kv_heads": 8},
    "heads of 24": {"hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 24},
    "odd hidden size": ODD | {"hidden": 37, "heads": 2, "head_dim": 6, "ffn": 51, "vocab": 291},
    "quantised gate, odd rows": {"hidden": 64, "ffn": 72, "types": {"ffn_down": Type.F16}},
}


def token_ids(n: int, vocab_size: int = 288) -> list[int]:
    return np.random.default_rng(1).integers(0, vocab_size, n).tolist()


def logits_of(path: Path, ids: list[int], **options: Any) -> npt.NDArray[np.float32]:
    with Engine(path, **options) as engine:
        return engine.logits(ids)


@pytest.mark.parametrize("name", MODELS)
def test_every_isa_computes_the_model(tmp_path: Path, name: str) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", **MODELS[name])
    ids = token_ids(80)
    expected = numpy_logits(path, ids)
    reference = logits_of(path, ids, isa=REFERENCE, threads=1)
    assert reference.shape == expected.shape
    assert reference.dtype == np.float32
    np.testing.assert_allclose(reference, expected, atol=2e-4)
    for isa in supported_isas():
        logits = logits_of(path, ids, isa=isa, threads=1)
        assert mean_kl(expected, logits) < 1e-5
        np.testing.assert_allclose(logits, expected, atol=0.05)


def test_long_sequences_span_many_kv_blocks(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", type=Type.F32)
    ids = token_ids(400)
    expected = numpy_logits(path, ids)
    np.testing.assert_allclose(logits_of(path, ids, isa=REFERENCE), expected, atol=3e-4)
    for isa in supported_isas():
        assert mean_kl(expected, logits_of(path, ids, isa=isa)) < 1e-5


def test_a_tall_vocabulary_and_a_deep_model(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", vocab=2_001, layers=6, type=Type.Q8_0)
    ids = token_ids(20, 2_001)
    expected = numpy_logits(path, ids)
    for isa in (REFERENCE, *supported_isas()):
        logits = logits_of(path, ids, isa=isa)
        assert mean_kl(expected, logits) < 1e-5
        assert (logits.argmax(-1) == expected.argmax(-1)).all()


@pytest.mark.parametrize("isa", [REFERENCE, *supported_isas()])
def test_decoding_follows_the_float64_model(tmp_path: Path, isa: str) -> None:
    """Greedy tokens of the engine, one at a time, are the most likely ones of the model read all at once."""
    path = write_tiny_model(tmp_path / "model.gguf", type=Type.Q8_0)
    prompt = token_ids(60)
    with Engine(path, isa=isa) as engine:
        output = engine.generate(prompt, max_tokens=100, ignore_eos=True, logprobs=0)
    logits = numpy_logits(path, prompt + output.token_ids[:-1])[len(prompt) - 1 :]
    rows = np.arange(len(output.token_ids))
    margins = logits.max(-1) - logits[rows, output.token_ids]
    assert margins.max() < 0.02
    assert output.logprobs is not None
    told = [entry.logprob for entry in output.logprobs]
    np.testing.assert_allclose(told, log_softmax(logits)[rows, output.token_ids], atol=0.03)
