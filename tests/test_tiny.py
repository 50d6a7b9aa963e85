"""The tiny models themselves: seeded, spelled by their own vocabulary, and not degenerate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from support.tiny import read_weights, write_tiny_model
from support.vocabulary import bpe_metadata, spm_metadata


def test_a_seed_gives_the_same_file(tmp_path: Path) -> None:
    first, again, other = (
        write_tiny_model(tmp_path / f"{index}.gguf", seed=seed).read_bytes() for index, seed in enumerate((1, 1, 2))
    )
    assert first == again != other


@pytest.mark.parametrize("metadata", [bpe_metadata(), spm_metadata(), bpe_metadata(400)])
def test_vocabularies_are_consistent(metadata: dict[str, list[str]]) -> None:
    tokens = metadata["tokenizer.ggml.tokens"]
    assert len(set(tokens)) == len(tokens)
    assert len(metadata["tokenizer.ggml.token_type"]) == len(tokens)
    for merge in metadata.get("tokenizer.ggml.merges", []):
        left, right = merge.split(" ")
        assert {left, right, left + right} <= set(tokens)


def test_a_vocabulary_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 288"):
        bpe_metadata(287)


def test_types_by_tensor(tmp_path: Path) -> None:
    exact = read_weights(write_tiny_model(tmp_path / "f32.gguf", type=Type.F32))
    mixed = read_weights(write_tiny_model(tmp_path / "mixed.gguf", type=Type.Q4_0, types={"ffn_up": Type.F32}))
    assert exact.keys() == mixed.keys()
    for name, weights in exact.items():
        same = np.array_equal(weights, mixed[name])
        assert same == (weights.ndim == 1 or "ffn_up" in name), name
        assert np.abs(weights - mixed[name]).max() <= np.abs(weights).max() / 8  # half a 4-bit step
