"""Question sets on disk: rows of JSONL, JSON, CSV and parquet files, each with the place that errors name."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ultrafast.bench.exam.questions import FIELDS
from ultrafast.errors import ConfigError

FORMATS = ("jsonl", "json", "csv", "parquet")
_CELL_LIMIT = 1 << 28  # characters of a CSV cell: images are data URLs
_BATCH = 64  # parquet rows at a time, so that images of a whole set are never in memory at once

Rows = Iterator[tuple[str, Any]]


def rows_of(path: Path) -> Rows:
    """The rows of a file, by the end of its name.

    Raises:
        ConfigError: no such file, or it is not what its name says.
    """
    readers = {".jsonl": _jsonl, ".json": _json, ".csv": _csv, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"{path}: a question set is a file that ends in .{', .'.join(FORMATS)}")
    return reader(path)


def _jsonl(path: Path) -> Rows:
    # Only line feeds end lines: text may hold other separators that splitlines() would take for an end.
    for number, line in enumerate(_read(path).split(b"\n"), 1):
        if line.strip():
            yield f"{path.name}, line {number}", _decoded(line, f"{path.name}, line {number}")


def _json(path: Path) -> Rows:
    rows = _decoded(_read(path), path.name)
    if not isinstance(rows, list):
        raise ConfigError(f"{path.name}: a list of questions is needed; one a line is .jsonl")
    for number, row in enumerate(rows, 1):
        yield f"{path.name}, item {number}", row


def _csv(path: Path) -> Rows:
    try:
        text = _read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path.name}: not UTF-8: {error.reason} at byte {error.start}") from None
    csv.field_size_limit(_CELL_LIMIT)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        names = next(reader, [])
        if len(set(names)) != len(names):
            raise ConfigError(f"{path.name}, line 1: two columns have one name")
        start = reader.line_num + 1
        for cells in reader:
            place = f"{path.name}, line {start}"
            if cells:
                if len(cells) != len(names):
                    raise ConfigError(f"{place}: {len(cells)} cells under {len(names)} columns")
                yield place, dict(zip(names, cells, strict=True))
            start = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path.name}, line {reader.line_num}: not CSV: {error}") from None


def _parquet(path: Path) -> Rows:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ConfigError(
            f"{path.name}: reading parquet needs pyarrow: pip install 'ultrafast[exam]', or convert the file to JSONL"
        ) from None
    number = 0
    try:
        with ParquetFile(path) as file:
            wanted = [name for name in file.schema_arrow.names if name in FIELDS]
            for batch in file.iter_batches(_BATCH, columns=wanted):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path.name}, row {number}", row
    except (ArrowException, OSError, ValueError) as error:
        raise ConfigError(f"{path.name}: cannot be read as parquet: {str(error).splitlines()[0]:.200}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _decoded(raw: bytes, place: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{place}: not JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{place}: JSON nested too deeply") from None
