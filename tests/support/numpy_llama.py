"""The Llama forward pass in float64, written from the architecture's papers and the GGUF conventions alone.

It shares no code with the engine: weights are dequantised by the reference GGUF package, RoPE frequencies are computed
here from the file's metadata. Slow and plain on purpose.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from support.tiny import read_weights

Array = npt.NDArray[np.float64]


def numpy_logits(path: Path, token_ids: list[int]) -> Array:
    """Next-token logits after each token: [n, vocab_size]."""
    w = {name: tensor.astype(np.float64) for name, tensor in read_weights(path).items()}
    meta = {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}
    num_heads = meta["llama.attention.head_count"]
    num_kv_heads = meta["llama.attention.head_count_kv"]
    hidden_size = meta["llama.embedding_length"]
    head_dim = meta.get("llama.attention.key_length", hidden_size // num_heads)
    eps = meta["llama.attention.layer_norm_rms_epsilon"]
    angles = np.outer(np.arange(len(token_ids)), _inv_freq(meta, w))

    def project(name: str, x: Array) -> Array:
        return np.asarray(x @ w[name + ".weight"].T + w.get(name + ".bias", np.zeros(1)))

    x = w["token_embd.weight"][token_ids]
    for layer in range(meta["llama.block_count"]):
        block = f"blk.{layer}."
        normed = _rms_norm(x, w[block + "attn_norm.weight"], eps)
        q = _rotate(project(block + "attn_q", normed).reshape(-1, num_heads, head_dim), angles)
        k = _rotate(project(block + "attn_k", normed).reshape(-1, num_kv_heads, head_dim), angles)
        v = project(block + "attn_v", normed).reshape(-1, num_kv_heads, head_dim)
        x = x + project(block + "attn_output", _attend(q, k, v))
        normed = _rms_norm(x, w[block + "ffn_norm.weight"], eps)
        gate = project(block + "ffn_gate", normed)
        x = x + project(block + "ffn_down", gate / (1 + np.exp(-gate)) * project(block + "ffn_up", normed))
    x = _rms_norm(x, w["output_norm.weight"], eps)
    return np.asarray(x @ w.get("output.weight", w["token_embd.weight"]).T)


def log_softmax(logits: npt.NDArray[Any]) -> Array:
    """Natural-log probabilities along the last axis, in float64."""
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(axis=-1, keepdims=True)))


def mean_kl(reference: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Mean over positions of the Kullback-Leibler divergence of ``other`` from ``reference``; both are logits."""
    p, q = log_softmax(reference), log_softmax(other)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def _inv_freq(meta: dict[str, Any], w: dict[str, Array]) -> Array:
    """Su et al. 2021, with linear scaling (positions divided) and Llama 3's divisors."""
    dim = meta["llama.rope.dimension_count"]
    frequencies = meta["llama.rope.freq_base"] ** (-np.arange(0, dim, 2) / dim)
    if meta.get("llama.rope.scaling.type") == "linear":
        frequencies = frequencies / meta["llama.rope.scaling.factor"]
    return np.asarray(frequencies / w.get("rope_freqs.weight", np.ones(1)))


def _rotate(heads: Array, angles: Array) -> Array:
    """Pairs of neighbours are coordinates in a plane (the GGUF order of Llama's rows); the rest passes through."""
    dim = 2 * angles.shape[1]
    plane = heads[..., 0:dim:2] + 1j * heads[..., 1:dim:2]
    turned = plane * np.exp(1j * angles)[:, None, :]
    out = heads.copy()
    out[..., 0:dim:2], out[..., 1:dim:2] = turned.real, turned.imag
    return out


def _attend(q: Array, k: Array, v: Array) -> Array:
    """Causal attention; each key/value head serves ``num_heads / num_kv_heads`` query heads in a row."""
    num_tokens, num_heads, head_dim = q.shape
    group = num_heads // k.shape[1]
    scores = np.einsum("ihd,jhd->hij", q, np.repeat(k, group, axis=1)) / np.sqrt(head_dim)
    scores[:, np.triu(np.ones((num_tokens, num_tokens), bool), 1)] = -np.inf
    weights = np.exp(log_softmax(scores))
    return np.einsum("hij,jhd->ihd", weights, np.repeat(v, group, axis=1)).reshape(num_tokens, -1)


def _rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight)
