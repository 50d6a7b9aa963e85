"""Small seeded models, written with the reference GGUF package.

::

    path = write_tiny_model(tmp_path / "tiny.gguf", type=GGMLQuantizationType.Q8_0, layers=3)
    path = write_tiny_model(tmp_path / "bad.gguf", edit=lambda meta, tensors: tensors.pop("output_norm.weight"))
    weights = read_weights(path)  # name -> float32, dequantised by the reference package
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType

from support.k_quants import quantize
from support.vocabulary import CHATML, bpe_metadata, spm_metadata

VECTOR_TYPES = [GGMLQuantizationType[name] for name in ("F32", "F16", "BF16")]
MATRIX_TYPES = VECTOR_TYPES + [
    GGMLQuantizationType[name] for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
]
"""What the engine runs."""

Tensors = dict[str, npt.NDArray[np.float32]]
Edit = Callable[[dict[str, Any], Tensors], object]


def write_tiny_model(
    path: str | Path,
    *,
    architecture: str = "llama",
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int | None = None,
    ffn: int = 128,
    vocab: int | None = None,
    context: int = 512,
    type: GGMLQuantizationType = GGMLQuantizationType.Q4_0,
    types: Mapping[str, GGMLQuantizationType] | None = None,
    tied: bool = True,
    qkv_bias: bool = False,
    rope_base: float = 10_000.0,
    rope_dim: int | None = None,
    rope_linear: float | None = None,
    rope_factors: list[float] | None = None,
    tokenizer: str = "bpe",
    chat_template: str | None = CHATML,
    edit: Edit | None = None,
) -> Path:
    """Write a model whose logits vary well (standard deviation near 3) and return its path.

    Args:
        architecture: brings its norms; only ``llama`` leaves the choice of ``qkv_bias``.
        head_dim: defaults to ``hidden / heads``; another value is written as key and value length.
        vocab: number of tokens, filled up with unused ones; default: 288 for "bpe", 384 for "spm".
        type: of all matrices. Vectors (norms, biases, RoPE factors) are F32.
        types: exceptions, by part of the tensor's name: ``{"token_embd": Q8_0, "attn_norm": F16}``.
        rope_linear: factor of linear RoPE scaling.
        rope_factors: one divisor for each pair, as in Llama 3 files.
        tokenizer: "bpe" (byte-level, SmolLM2 layout), "spm" (Llama 2 layout) or "none".
        edit: called with the metadata (name -> value) and the float32 tensors just before they are written.
    """
    head_dim = head_dim or hidden // heads
    metadata: dict[str, Any] = {
        "general.architecture": architecture,
        "general.name": "Tiny",
        f"{architecture}.block_count": layers,
        f"{architecture}.context_length": context,
        f"{architecture}.embedding_length": hidden,
        f"{architecture}.feed_forward_length": ffn,
        f"{architecture}.attention.head_count": heads,
        f"{architecture}.attention.head_count_kv": kv_heads,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.freq_base": rope_base,
        f"{architecture}.rope.dimension_count": rope_dim or head_dim,
    }
    if head_dim * heads != hidden:
        metadata |= {
            f"{architecture}.attention.key_length": head_dim,
            f"{architecture}.attention.value_length": head_dim,
        }
    if rope_linear is not None:
        metadata |= {f"{architecture}.rope.scaling.type": "linear", f"{architecture}.rope.scaling.factor": rope_linear}
    vocabulary = {"bpe": bpe_metadata, "spm": spm_metadata, "none": lambda _: {}}[tokenizer](vocab)
    metadata |= vocabulary
    vocab = len(vocabulary.get("tokenizer.ggml.tokens", ())) or vocab or 288
    metadata[f"{architecture}.vocab_size"] = vocab
    if chat_template is not None:
        metadata["tokenizer.chat_template"] = chat_template

    rows = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
    tensors = _tensors(np.random.default_rng(seed), hidden, layers, rows, ffn, vocab)
    if tied:
        del tensors["output.weight"]
    if architecture in ("qwen3", "gemma3"):
        for layer in range(layers):
            tensors |= {f"blk.{layer}.attn_{part}_norm.weight": np.full(head_dim, 1.5, np.float32) for part in "qk"}
    if architecture == "gemma3":
        for layer in range(layers):
            tensors |= {
                f"blk.{layer}.post_{part}_norm.weight": np.ones(hidden, np.float32) for part in ("attention", "ffw")
            }
    if not (qkv_bias or architecture == "qwen2"):
        tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith(".bias")}
    if rope_factors is not None:
        tensors["rope_freqs.weight"] = np.array(rope_factors, np.float32)
    if edit is not None:
        edit(metadata, tensors)
    write_model(Path(path), metadata, tensors, type, types or {})
    return Path(path)


def write_model(
    path: Path,
    metadata: dict[str, Any],
    tensors: Tensors,
    type: GGMLQuantizationType,
    types: Mapping[str, GGMLQuantizationType],
) -> None:
    """Write a file of these metadata and tensors; ``type`` and ``types`` as for `write_tiny_model`."""
    writer = gguf.GGUFWriter(path, metadata["general.architecture"])
    for key, value in metadata.items():
        if key == "general.architecture":  # the writer has put it first
            continue
        kind = gguf.GGUFValueType.UINT32 if value.__class__ is int else gguf.GGUFValueType.get_type(value)
        writer.add_key_value(key, value, kind)
    for name, tensor in tensors.items():
        default = type if tensor.ndim > 1 else GGMLQuantizationType.F32
        kind = next((wanted for part, wanted in types.items() if part in name), default)
        writer.add_tensor(name, quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_weights(path: str | Path) -> Tensors:
    """Every tensor as float32, rows first, dequantised by the reference package."""
    return {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for tensor in gguf.GGUFReader(path).tensors
    }


def _tensors(rng: np.random.Generator, hidden: int, layers: int, rows: dict[str, int], ffn: int, vocab: int) -> Tensors:
    """Weights with unit gain, but for outputs of layers: twice that, or the embedding would drown them."""

    def matrix(num_rows: int, num_cols: int, gain: float = 1.0) -> npt.NDArray[np.float32]:
        return (rng.standard_normal((num_rows, num_cols)) * gain / math.sqrt(num_cols)).astype(np.float32)

    def vector(size: int, mean: float, spread: float) -> npt.NDArray[np.float32]:
        return (mean + rng.standard_normal(size) * spread).astype(np.float32)

    tensors = {"token_embd.weight": matrix(vocab, hidden, 3.0)}
    for layer in range(layers):
        block = f"blk.{layer}."
        tensors[block + "attn_norm.weight"] = vector(hidden, 1.0, 0.1)
        for part, gain in (("q", 1.5), ("k", 1.5), ("v", 1.0)):
            tensors[f"{block}attn_{part}.weight"] = matrix(rows[part], hidden, gain)
            tensors[f"{block}attn_{part}.bias"] = vector(rows[part], 0.0, 0.5)
        tensors[block + "attn_output.weight"] = matrix(hidden, rows["q"], 2.0)
        tensors[block + "ffn_norm.weight"] = vector(hidden, 1.0, 0.1)
        tensors[block + "ffn_gate.weight"] = matrix(ffn, hidden, 1.5)
        tensors[block + "ffn_up.weight"] = matrix(ffn, hidden, 1.5)
        tensors[block + "ffn_down.weight"] = matrix(hidden, ffn, 2.0)
    tensors["output_norm.weight"] = vector(hidden, 1.0, 0.1)
    tensors["output.weight"] = matrix(vocab, hidden, 3.0)
    return tensors
