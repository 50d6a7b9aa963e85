"""GGUF files written by hand, so that tests can write what no library would."""

from __future__ import annotations

import struct
from collections.abc import Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return u64(len(raw)) + raw


def pair(key: str | bytes, type: int, payload: bytes) -> bytes:
    """One metadata key with its value."""
    return string(key) + u32(type) + payload


def array(type: int, payload: bytes, count: int) -> bytes:
    return u32(type) + u64(count) + payload


def tensor(name: str | bytes = "t", dims: Sequence[int] = (32,), type: int = 0, offset: int = 0) -> bytes:
    """One tensor record; ``dims`` in the file's order, columns first."""
    return string(name) + u32(len(dims)) + b"".join(map(u64, dims)) + u32(type) + u64(offset)


def gguf(
    pairs: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    num_pairs: int | None = None,
    num_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file; counts may be made to lie."""
    counts = u64(len(tensors) if num_tensors is None else num_tensors)
    counts += u64(len(pairs) if num_pairs is None else num_pairs)
    header = b"GGUF" + u32(version) + counts + b"".join(pairs) + b"".join(tensors)
    return header + bytes(-len(header) % alignment) + data
