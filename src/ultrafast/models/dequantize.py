"""Tensors of a GGUF file as numbers: for whoever computes with them in numpy.

Layouts are those of the GGUF specification; K-quants store 256 weights as eight parts of 32 (Q4_K, Q5_K) or sixteen of
16 (Q6_K), each with a scale of its own. The order of operations is that of ggml, so that every weight has its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ultrafast.errors import ModelFileError
from ultrafast.models.ggml_type import GgmlType
from ultrafast.models.gguf import GgufFile

Floats = npt.NDArray[np.float32]
Blocks = npt.NDArray[np.void]
"""Structured: the fields of one block each."""


def dequantize(file: GgufFile, name: str) -> Floats:
    """A tensor as float32, rows first.

    Raises:
        ModelFileError: there is no such tensor, or it has a type that the engine does not run.
    """
    tensor = file.tensors.get(name)
    if tensor is None:
        raise ModelFileError(file.path, f"tensor {name!r} is missing")
    if tensor.type not in _FORMATS:
        known = ", ".join(type_.name for type_ in _FORMATS)
        raise ModelFileError(
            file.path, f"tensor {name!r} has type {tensor.type.name}, which is not supported; supported: {known}"
        )
    fields, decode = _FORMATS[tensor.type]
    return decode(file.data(name).view(np.dtype(fields))).reshape(tensor.shape)


def _plain(blocks: Blocks) -> Floats:
    return blocks["x"].astype(np.float32)


def _bf16(blocks: Blocks) -> Floats:
    return (blocks["x"].astype(np.uint32) << 16).view(np.float32)


def _q8_0(blocks: Blocks) -> Floats:
    return _factor(blocks, "d") * blocks["q"].astype(np.float32)


def _symmetric(zero: int) -> Callable[[Blocks], Floats]:
    """Q4_0 and Q5_0: ``d * (q - zero)``."""
    return lambda blocks: _factor(blocks, "d") * (_codes(blocks).astype(np.float32) - zero)


def _affine(blocks: Blocks) -> Floats:
    """Q4_1 and Q5_1: ``d * q + m``."""
    return _factor(blocks, "d") * _codes(blocks).astype(np.float32) + _factor(blocks, "m")


def _codes(blocks: Blocks) -> npt.NDArray[np.uint8]:
    """Blocks of 32: the low nibbles are the first 16 weights, the high ones the rest; fifth bits are one word."""
    codes = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=-1)
    if "high" in (blocks.dtype.names or ()):
        codes |= np.unpackbits(blocks["high"], axis=-1, bitorder="little") << 4
    return np.asarray(codes)


def _q45_k(blocks: Blocks) -> Floats:
    """Q4_K and Q5_K: ``d * scale * q - dmin * minimum``, scales and minima of six bits each."""
    packed = blocks["scales"]
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6) << 4], axis=-1).astype(np.float32)
    minima = np.concatenate([second & 63, (third >> 4) | (second >> 6) << 4], axis=-1).astype(np.float32)
    nibbles = blocks["q"].reshape(-1, 4, 32)
    codes = np.stack([nibbles & 15, nibbles >> 4], axis=2).reshape(-1, 8, 32)
    if "high" in (blocks.dtype.names or ()):
        part = np.arange(8, dtype=np.uint8)[:, None]
        codes |= (blocks["high"][:, None, :] >> part & 1) << 4
    scale, minimum = _factor(blocks, "d") * scales, _factor(blocks, "dmin") * minima
    return np.asarray(scale[..., None] * codes.astype(np.float32) - minimum[..., None])


def _q6_k(blocks: Blocks) -> Floats:
    """``d * scale * (q - 32)``: of each 128 weights, nibbles in 64 bytes and upper pairs of bits in 32."""
    nibbles = blocks["q"].reshape(-1, 2, 64)
    low = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)
    high = blocks["high"].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    codes = (low | high.reshape(-1, 2, 128) << 4).reshape(-1, 16, 16).astype(np.float32) - 32
    scale = _factor(blocks, "d") * blocks["scales"].astype(np.float32)
    return np.asarray(scale[..., None] * codes)


def _factor(blocks: Blocks, name: str) -> Floats:
    """[blocks, 1]."""
    return blocks[name].astype(np.float32)[:, None]


_HALF, _BYTES = "<f2", "u1"
_FORMATS: dict[GgmlType, tuple[list[Any], Callable[[Blocks], Floats]]] = {
    GgmlType.F32: ([("x", "<f4")], _plain),
    GgmlType.F16: ([("x", _HALF)], _plain),
    GgmlType.BF16: ([("x", "<u2")], _bf16),
    GgmlType.Q4_0: ([("d", _HALF), ("q", _BYTES, 16)], _symmetric(8)),
    GgmlType.Q4_1: ([("d", _HALF), ("m", _HALF), ("q", _BYTES, 16)], _affine),
    GgmlType.Q5_0: ([("d", _HALF), ("high", _BYTES, 4), ("q", _BYTES, 16)], _symmetric(16)),
    GgmlType.Q5_1: ([("d", _HALF), ("m", _HALF), ("high", _BYTES, 4), ("q", _BYTES, 16)], _affine),
    GgmlType.Q8_0: ([("d", _HALF), ("q", "i1", 32)], _q8_0),
    GgmlType.Q4_K: ([("d", _HALF), ("dmin", _HALF), ("scales", _BYTES, 12), ("q", _BYTES, 128)], _q45_k),
    GgmlType.Q5_K: (
        [("d", _HALF), ("dmin", _HALF), ("scales", _BYTES, 12), ("high", _BYTES, 32), ("q", _BYTES, 128)],
        _q45_k,
    ),
    GgmlType.Q6_K: ([("q", _BYTES, 128), ("high", _BYTES, 64), ("scales", "i1", 16), ("d", _HALF)], _q6_k),
}
"""Fields of a block, and what they mean."""
