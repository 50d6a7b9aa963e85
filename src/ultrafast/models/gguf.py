"""Reading GGUF model files (versions 2 and 3, little-endian) without trusting them.

Layout, from the GGUF specification: magic, version, two counts, then the metadata (key, type, value), then one
record a tensor (name, dimensions, type, offset), then padding, then the tensor data at aligned offsets. Every count,
length and offset is checked against what is left of the file before anything is allocated for it, so that memory
and time stay proportional to the file whatever it claims about itself.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import stat
import struct
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from ultrafast.errors import ModelFileError, ModelNotFound
from ultrafast.models.ggml_type import GgmlType as GgmlType

# metadata value type -> struct format; strings, arrays and booleans are handled by name
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

# Bounds no real model comes near. They keep a hostile file of many gigabytes from filling memory with Python objects.
_MAX_HEADER_BYTES = 256 << 20  # the largest vocabularies need about 30 MB
_MAX_KEYS = 1 << 16
_MAX_TENSORS = 1 << 16
_MAX_ELEMENTS = 1 << 22  # of all metadata arrays together; a 262,144-token vocabulary with merges has 1.3 million
_MAX_KEY_BYTES = 65_535  # from the specification
_MAX_NAME_BYTES = 64  # from the specification
_MAX_NESTING = 4  # arrays inside arrays
_MAX_DIMS = 4
_MIN_ALIGNMENT, _MAX_ALIGNMENT = 8, 1 << 16  # the specification asks for a multiple of 8


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies.

    Attributes:
        shape: rows first (GGUF stores the dimensions in the reverse order).
        offset: absolute, in bytes from the start of the file.
    """

    name: str
    type: GgmlType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class GgufFile:
    """An open GGUF file: metadata and tensor records in memory, tensor data mapped read-only.

    Metadata values are str, int, float, bool or lists of them. Keys, tensor names and single strings must be UTF-8.
    Strings inside arrays may hold any bytes, as vocabularies do: those that are not UTF-8 come as lone surrogates,
    and ``text.encode("utf-8", "surrogateescape")`` gives the bytes back.

    Raises:
        ModelNotFound: there is no such file.
        ModelFileError: it is not a file this reader accepts; the message names the key, tensor or byte at fault.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._fd, mapped = _map_file(self.path)
        self._map: mmap.mmap | None = mapped
        try:
            cursor = _Cursor(self.path, mapped)
            self.version: int = _read_version(cursor)
            self.metadata: dict[str, Any] = {}
            self.tensors: dict[str, TensorInfo] = {}
            num_tensors = cursor.u64("the tensor count")
            num_keys = cursor.u64("the metadata count")
            cursor.claim(num_tensors, 32, "tensors", _MAX_TENSORS)
            cursor.claim(num_keys, 13, "metadata keys", _MAX_KEYS)
            self._read_metadata(cursor, num_keys)
            self._read_tensors(cursor, num_tensors)
        except BaseException:
            self.close()
            raise

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of one tensor, uint8 [nbytes], read-only, without a copy. Valid until `close`."""
        if self._map is None:
            raise ValueError(f"{self.path} is closed")
        tensor = self.tensors[name]
        return np.frombuffer(self._map, np.uint8, tensor.nbytes, tensor.offset)

    def fileno(self) -> int:
        """The open file, for reading at offsets. Valid until `close`."""
        if self._map is None:
            raise ValueError(f"{self.path} is closed")
        return self._fd

    def close(self) -> None:
        """Close and unmap the file; as long as an array from `data` lives, its pages stay mapped."""
        mapped, self._map = self._map, None
        if mapped is not None:
            os.close(self._fd)
            with contextlib.suppress(BufferError):  # arrays that still use the mapping own it now
                mapped.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _read_metadata(self, cursor: _Cursor, count: int) -> None:
        for _ in range(count):
            at = cursor.pos
            key = cursor.text("a metadata key", _MAX_KEY_BYTES)
            if not key:
                cursor.fail("a metadata key is empty", at)
            if key in self.metadata:
                cursor.fail(f"metadata key {_quoted(key)} occurs twice", at)
            self.metadata[key] = cursor.value(cursor.u32("a metadata type"), f"metadata key {_quoted(key)}")

    def _read_tensors(self, cursor: _Cursor, count: int) -> None:
        records = []
        for _ in range(count):
            records.append((cursor.pos, *_read_tensor(cursor)))
        alignment = self._alignment()
        data_start = -(-cursor.pos // alignment) * alignment
        for at, name, type_, shape, relative in records:
            if name in self.tensors:
                cursor.fail(f"tensor {_quoted(name)} occurs twice", at)
            nbytes = math.prod(shape) // type_.block_size * type_.block_bytes
            if relative % alignment:
                cursor.fail(f"tensor {_quoted(name)}: offset {relative} is not a multiple of {alignment}", at)
            if data_start + relative + nbytes > cursor.size:
                cursor.fail(
                    f"tensor {_quoted(name)}: its {nbytes} bytes at offset {data_start + relative} go past "
                    f"the end of the file ({cursor.size} bytes); the file is truncated or damaged",
                    at,
                )
            self.tensors[name] = TensorInfo(name, type_, shape, data_start + relative, nbytes)
        self._check_overlaps()

    def _alignment(self) -> int:
        alignment = self.metadata.get("general.alignment", 32)
        if (
            type(alignment) is not int
            or not _MIN_ALIGNMENT <= alignment <= _MAX_ALIGNMENT
            or alignment & (alignment - 1)
        ):
            raise ModelFileError(
                self.path,
                f"metadata key 'general.alignment' is {alignment!r:.80}; it must be a power of two "
                f"from {_MIN_ALIGNMENT} to {_MAX_ALIGNMENT}",
            )
        return alignment

    def _check_overlaps(self) -> None:
        previous: TensorInfo | None = None
        for tensor in sorted(self.tensors.values(), key=lambda tensor: tensor.offset):
            if previous and tensor.offset < previous.offset + previous.nbytes:
                raise ModelFileError(self.path, f"tensors {_quoted(previous.name)} and {_quoted(tensor.name)} overlap")
            previous = tensor


class _Cursor:
    """A reading position in the header that never leaves the file."""

    def __init__(self, path: str, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.end = min(self.size, _MAX_HEADER_BYTES)
        self.pos = 0
        self.elements_left = _MAX_ELEMENTS

    def fail(self, problem: str, at: int | None = None) -> NoReturn:
        raise ModelFileError(self.path, f"{problem} (at byte {self.pos if at is None else at})")

    def claim(self, count: int, min_bytes: int, what: str, limit: int = _MAX_HEADER_BYTES) -> None:
        """Refuse a count of things of at least ``min_bytes`` each that the rest of the header cannot hold."""
        if count > limit:
            self.fail(f"{count} {what} are more than the {limit} that are possible")
        left = self.end - self.pos
        if count * min_bytes > left:
            if self.end < self.size:
                self.fail(f"{count} {what} would make the header longer than {_MAX_HEADER_BYTES} bytes")
            self.fail(f"{count} {what} do not fit the {left} bytes that are left; the file is truncated or damaged")

    def u32(self, what: str) -> int:
        return self._unpack(_U32, what)

    def u64(self, what: str) -> int:
        return self._unpack(_U64, what)

    def text(self, what: str, limit: int) -> str:
        """A length-prefixed string that must be UTF-8."""
        at = self.pos
        length = self.u64(f"the length of {what}")
        if length > limit:
            self.fail(f"{what} is {length} bytes long, more than {limit}", at)
        self.claim(length, 1, f"bytes of {what}")
        raw = self.data[self.pos : self.pos + length]
        self.pos += length
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            self.fail(f"{what} is not valid UTF-8: {error.reason}", self.pos - length + error.start)

    def value(self, type_: int, what: str, depth: int = 0) -> Any:
        """One metadata value of the given type."""
        if type_ == _STRING:
            return self.text(what, _MAX_HEADER_BYTES)
        if type_ == _ARRAY:
            return self._array(what, depth + 1)
        return self._numbers(type_, 1, what)[0]

    def _array(self, what: str, depth: int) -> list[Any]:
        if depth > _MAX_NESTING:
            self.fail(f"{what} nests arrays deeper than {_MAX_NESTING}")
        type_ = self.u32(f"the element type of {what}")
        count = self.u64(f"the element count of {what}")
        if count > self.elements_left:
            self.fail(f"{what} has {count} elements; all arrays together may have {_MAX_ELEMENTS}")
        self.elements_left -= count
        if type_ == _STRING:
            return self._strings(count, what)
        if type_ == _ARRAY:
            self.claim(count, 12, f"arrays in {what}")
            return [self._array(what, depth + 1) for _ in range(count)]
        return self._numbers(type_, count, what)

    def _strings(self, count: int, what: str) -> list[str]:
        self.claim(count, 8, f"strings in {what}")
        data, end, unpack = self.data, self.end, _U64.unpack_from
        pos = self.pos
        strings = []
        for index in range(count):  # 100,000 turns in an ordinary file: everything is local
            start = pos + 8
            if start <= end:
                pos = start + unpack(data, pos)[0]
            if start > end or pos > end:
                self.fail(f"string {index} of {what} goes past the end of the file", start - 8)
            strings.append(data[start:pos].decode("utf-8", "surrogateescape"))
        self.pos = pos
        return strings

    def _numbers(self, type_: int, count: int, what: str) -> list[Any]:
        code = _SCALARS.get(type_)
        if code is None:
            self.fail(f"{what} has the unknown value type {type_}")
        width = struct.calcsize(f"<{code}")
        self.claim(count, width, f"values of {what}")
        numbers = list(struct.unpack_from(f"<{count}{code}", self.data, self.pos))
        if type_ == _BOOL:
            if any(number > 1 for number in numbers):
                self.fail(f"{what} holds a boolean that is neither 0 nor 1")
            numbers = [number == 1 for number in numbers]
        self.pos += count * width
        return numbers

    def _unpack(self, format: struct.Struct, what: str) -> int:
        if self.pos + format.size > self.end:
            self.fail(f"the file ends inside {what}; it is truncated or damaged")
        (number,) = format.unpack_from(self.data, self.pos)
        self.pos += format.size
        return int(number)


def _map_file(path: str) -> tuple[int, mmap.mmap]:
    # Without O_NONBLOCK, opening a FIFO would wait for somebody to write to it.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        fd = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelNotFound(f"{path}: no such file") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ModelFileError(path, f"cannot be opened: {getattr(error, 'strerror', None) or error}") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(path, "is not a regular file")
        if status.st_size == 0:
            raise ModelFileError(path, "is empty")
        return fd, mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        os.close(fd)
        raise ModelFileError(path, f"cannot be mapped: {error.strerror or error}") from error
    except ModelFileError:
        os.close(fd)
        raise


def _read_version(cursor: _Cursor) -> int:
    magic = cursor.data[:4]
    if magic != b"GGUF":
        raise ModelFileError(cursor.path, f"is not a GGUF file (it starts with {magic!r})")
    cursor.pos = 4
    version = cursor.u32("the version")
    if version in (2, 3):
        return version
    if version and version & 0xFFFF == 0:
        raise ModelFileError(cursor.path, "is a big-endian GGUF file; convert it to little-endian")
    raise ModelFileError(cursor.path, f"is GGUF version {version}; versions 2 and 3 are supported, convert it again")


def _read_tensor(cursor: _Cursor) -> tuple[str, GgmlType, tuple[int, ...], int]:
    """Name, type, shape (rows first) and offset from the start of the data, all but the offset checked."""
    at = cursor.pos
    name = cursor.text("a tensor name", _MAX_NAME_BYTES)
    if not name:
        cursor.fail("a tensor name is empty", at)
    what = f"tensor {_quoted(name)}"
    num_dims = cursor.u32(f"{what}: the number of dimensions")
    if not 1 <= num_dims <= _MAX_DIMS:
        cursor.fail(f"{what} has {num_dims} dimensions; 1 to {_MAX_DIMS} are possible", at)
    dims = [cursor.u64(f"{what}: its dimensions") for _ in range(num_dims)]
    if 0 in dims:
        cursor.fail(f"{what} has a dimension of size 0: {dims}", at)
    type_id = cursor.u32(f"{what}: its type")
    try:
        type_ = GgmlType(type_id)
    except ValueError:
        cursor.fail(f"{what} has the unknown type {type_id}", at)
    if dims[0] % type_.block_size:
        cursor.fail(f"{what}: rows of {dims[0]} elements are not whole {type_.name} blocks of {type_.block_size}", at)
    return name, type_, tuple(reversed(dims)), cursor.u64(f"{what}: its offset")


def _quoted(name: str) -> str:
    """A name from the file, fit for a one-line message."""
    return repr(name if len(name) <= 80 else name[:80] + "…")
