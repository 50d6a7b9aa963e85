"""What the supported architectures have beyond, or unlike, ``llama``. Names are those of ``general.architecture``."""

from __future__ import annotations

from dataclasses import dataclass

from ultrafast.models.metadata import Metadata

_GEMMA_27B_LAYERS = 62
_GEMMA_WINDOW_PERIOD = 6


@dataclass(frozen=True, slots=True)
class Architecture:
    """Traits of a family.

    Attributes:
        rope_halves: a pair that RoPE rotates is rows ``i`` and ``i + rope_dim / 2`` of a head; else neighbours. (Files
            of Llama models store the rows of Q and K in the order that makes them neighbours.)
        qkv_bias: Q, K and V have biases; None: where the file holds them.
        qk_norm: each head of Q and K goes through an RMS norm before RoPE.
        post_norms: what attention and feed-forward add goes through an RMS norm.
        gelu: gates go through GELU (tanh) instead of SiLU.
        scaled_embedding: embeddings are multiplied by the square root of the hidden size.
        local_layers: sliding attention stays in some of the layers, with RoPE frequencies of its own.
    """

    rope_halves: bool = False
    qkv_bias: bool | None = False
    qk_norm: bool = False
    post_norms: bool = False
    gelu: bool = False
    scaled_embedding: bool = False
    local_layers: bool = False


ARCHITECTURES = {
    "llama": Architecture(qkv_bias=None),
    "qwen2": Architecture(rope_halves=True, qkv_bias=True),
    "qwen3": Architecture(rope_halves=True, qk_norm=True),
    "gemma3": Architecture(
        rope_halves=True, qk_norm=True, post_norms=True, gelu=True, scaled_embedding=True, local_layers=True
    ),
}


def query_scale(architecture: str, num_layers: int, hidden_size: int, num_heads: int, head_dim: int) -> float:
    """What attention scores are multiplied with. Only Gemma 3 27B, known by its depth, uses ``hidden / heads``."""
    if architecture == "gemma3" and num_layers == _GEMMA_27B_LAYERS:
        return float((hidden_size / num_heads) ** -0.5)
    return float(head_dim**-0.5)


def layer_windows(meta: Metadata, architecture: str, num_layers: int, max_size: int) -> tuple[int, ...]:
    """Of each layer the number of last positions that it attends to, 0 for all.

    Gemma's layers are local but for every sixth, or as ``attention.sliding_window_pattern`` says: one number for the
    period, or for each layer whether it is local.
    """
    window = meta.integer("attention.sliding_window", 0, max_size, 0) if ARCHITECTURES[architecture].local_layers else 0
    key = "attention.sliding_window_pattern"
    pattern = meta.get(key) if window else None
    if isinstance(pattern, list):
        if len(pattern) != num_layers or any(type(local) is not bool for local in pattern):
            meta.fail(key, f"must hold true or false for each of the {num_layers} layers")
        return tuple(window if local else 0 for local in pattern)
    period = meta.integer(key, 1, max_size, _GEMMA_WINDOW_PERIOD) if window else 1
    return tuple(window if (layer + 1) % period else 0 for layer in range(num_layers))
