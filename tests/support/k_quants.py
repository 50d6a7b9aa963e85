"""A plain quantiser for Q4_K, Q5_K and Q6_K, which the reference GGUF package can only read.

It rounds to the nearest value that each block can hold with the largest scales as factors: no search for better ones.
Layouts: gguf/quants.py, from which `gguf.dequantize` is also the check.
"""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_BLOCK = 256


def quantize(values: Floats, type: Type) -> npt.NDArray[Any]:
    """Rows of float32 as the file stores them; the types of the reference package are quantised by it."""
    if type not in (Type.Q4_K, Type.Q5_K, Type.Q6_K):
        return gguf.quantize(values, type)
    blocks = values.reshape(-1, _BLOCK).astype(np.float32)
    packed = _q6_k(blocks) if type is Type.Q6_K else _q45_k(blocks, 15 if type is Type.Q4_K else 31)
    return packed.reshape(*values.shape[:-1], -1)


def _q45_k(blocks: Floats, top: int) -> Bytes:
    """``weight = d * scale * q - dmin * minimum``: f16 d and dmin, packed scales (, fifth bits), nibbles."""
    parts = blocks.reshape(-1, 8, 32)
    minima = np.maximum(-parts.min(-1), 0)
    scales = (parts.max(-1) + minima) / top
    d, d_min = _factor(scales, 63), _factor(minima, 63)
    scales, minima = _divide(scales, d).clip(0, 63), _divide(minima, d_min).clip(0, 63)
    q = _divide(parts + (d_min * minima)[..., None], (d * scales)[..., None]).clip(0, top).astype(np.uint8)
    nibbles = (q & 15).reshape(-1, 4, 2, 32)
    fields = [_half(d), _half(d_min), _six_bits(scales.astype(np.uint8), minima.astype(np.uint8))]
    if top == 31:
        fields.append(np.packbits(q >> 4, axis=1, bitorder="little").reshape(-1, 32))
    fields.append((nibbles[:, :, 0] | nibbles[:, :, 1] << 4).reshape(-1, 128))
    return np.concatenate(fields, axis=-1)


def _six_bits(scales: Bytes, minima: Bytes) -> Bytes:
    """Twelve bytes: parts 0-3 in the lower six bits of eight bytes, parts 4-7 spread over the rest."""
    return np.concatenate(
        [
            scales[:, :4] | (scales[:, 4:] >> 4) << 6,
            minima[:, :4] | (minima[:, 4:] >> 4) << 6,
            (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4,
        ],
        axis=-1,
    )


def _q6_k(blocks: Floats) -> Bytes:
    """``weight = d * scale * (q - 32)``: nibbles, upper bits, a signed scale for each 16 inputs, f16 d."""
    parts = blocks.reshape(-1, 16, 16)
    # The largest weight becomes -32, as the range is -32 ... 31; so scales have either sign.
    largest = np.take_along_axis(parts, np.abs(parts).argmax(-1)[..., None], -1)[..., 0]
    scales = largest / -32
    d = _factor(np.abs(scales), 127)
    scales = _divide(scales, d).clip(-127, 127)
    q = (_divide(parts, (d * scales)[..., None]).clip(-32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    nibbles, upper = (q & 15).reshape(-1, 2, 2, 64), q >> 4
    return np.concatenate(
        [
            (nibbles[:, :, 0] | nibbles[:, :, 1] << 4).reshape(-1, 128),
            (upper[:, :, 0] | upper[:, :, 1] << 2 | upper[:, :, 2] << 4 | upper[:, :, 3] << 6).reshape(-1, 64),
            scales.astype(np.int8).view(np.uint8),
            _half(d),
        ],
        axis=-1,
    )


def _factor(scales: Floats, top: int) -> Floats:
    """[blocks, 1]: what makes the largest scale ``top``, as the f16 that is stored."""
    return (scales.max(-1, keepdims=True) / top).astype(np.float16).astype(np.float32)


def _divide(values: Floats, steps: Floats) -> Floats:
    """Steps in the values, rounded; none where the step is 0."""
    return np.rint(np.divide(values, steps, out=np.zeros_like(values), where=steps != 0))


def _half(values: Floats) -> Bytes:
    return values.astype(np.float16).view(np.uint8)
