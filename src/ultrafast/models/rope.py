"""Rotation frequencies of RoPE with the scaling that the model file asks for."""

from __future__ import annotations

import numpy as np

from ultrafast.errors import ModelFileError
from ultrafast.models.ggml_type import GgmlType
from ultrafast.models.gguf import GgufFile
from ultrafast.models.metadata import Metadata

_FACTORS = "rope_freqs.weight"
_MAX_FREQUENCY = 1e6  # radians per position; 1 without scaling. Angles stay exact enough at any position below it.


def rope_inv_freq(file: GgufFile, meta: Metadata, rope_dim: int) -> tuple[float, ...]:
    """Angles in radians per position, one for each of the ``rope_dim / 2`` rotated pairs.

    ``base ** (-2i / rope_dim)`` (Su et al. 2021), divided by the factor of linear scaling (Chen et al. 2023) and by
    the per-pair factors that Llama 3 files carry as a tensor.
    """
    base = meta.number("rope.freq_base", at_least=1.0, default=10_000.0)
    scale = _linear_factor(meta)
    factors = _pair_factors(file, rope_dim // 2)
    inv_freq = tuple(base ** (-2 * i / rope_dim) / scale / factor for i, factor in enumerate(factors))
    if not all(0 < frequency <= _MAX_FREQUENCY for frequency in inv_freq):
        meta.fail("rope.freq_base", f"({base:g}) and the RoPE scaling give frequencies out of range")
    return inv_freq


def local_rope_inv_freq(meta: Metadata, rope_dim: int) -> tuple[float, ...]:
    """The same for layers with sliding attention: a base of their own, and no scaling."""
    base = meta.number("rope.freq_base_swa", at_least=1.0, default=10_000.0)
    return tuple(base ** (-2 * i / rope_dim) for i in range(rope_dim // 2))


def _linear_factor(meta: Metadata) -> float:
    if meta.number("rope.scaling.attn_factor", default=1.0) != 1.0:
        meta.fail("rope.scaling.attn_factor", "is not 1; scaled attention is not supported")
    kind = meta.text("rope.scaling.type", default="linear")
    if kind == "none":
        return 1.0
    if kind != "linear":
        meta.fail("rope.scaling.type", f"is {kind!r:.80}; supported: 'none', 'linear'")
    key = "rope.scaling.factor" if meta.get("rope.scaling.factor") is not None else "rope.scale_linear"
    # Converters write 0 for "no scaling".
    return 1.0 if meta.get(key) == 0 else meta.number(key, default=1.0)


def _pair_factors(file: GgufFile, num_pairs: int) -> list[float]:
    tensor = file.tensors.get(_FACTORS)
    if tensor is None:
        return [1.0] * num_pairs
    if tensor.shape != (num_pairs,):
        raise ModelFileError(
            file.path,
            f"tensor {_FACTORS!r} has shape {tensor.shape}; it must be ({num_pairs},)",
        )
    raw = file.data(_FACTORS)
    if tensor.type is GgmlType.F32:
        factors = raw.view("<f4")
    elif tensor.type is GgmlType.F16:
        factors = raw.view("<f2")
    elif tensor.type is GgmlType.BF16:  # the upper half of a float32
        factors = (raw.view("<u2").astype("<u4") << 16).view("<f4")
    else:
        raise ModelFileError(file.path, f"tensor {_FACTORS!r} has type {tensor.type.name}; F32, F16 or BF16 is needed")
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise ModelFileError(file.path, f"tensor {_FACTORS!r} holds a factor that is not finite and positive")
    return [float(factor) for factor in factors]
