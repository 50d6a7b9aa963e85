"""What measurements leave on disk: one versioned JSON document a run, and a log of one JSON object a line.

JSON has no infinity: ``"inf"`` and ``"-inf"`` stand for what never ended, ``null`` for what was not measured; `number`
reads either back. Nothing here tells who ran it, or where on their disk.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np

from ultrafast import __version__
from ultrafast.bench.client.call import Call
from ultrafast.engine import topology
from ultrafast.errors import ConfigError

FORMAT, VERSION = "ultrafast-bench", 1

_CHUNK = ("at_s", "tokens", "kind", "characters")


def document(kind: str, setup: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """A run's document, ready for `write_document`.

    Args:
        kind: which measurement: ``api``, ``exam``…
        setup: what was asked for: all it takes to run it again, but no keys.
        results: what came of it. Dataclasses, enums and arrays will do.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "program": {"name": "ultrafast", "version": __version__},
        "machine": machine(),
        "setup": plain(setup),
        "results": plain(results),
    }


def machine() -> dict[str, Any]:
    """The client's hardware and system: facts that bear on speed."""
    here = topology.detect()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": here.cpu_model,
        "cores": len(here.cores),
        "cpu_quota": here.cpu_quota,
        "memory_bytes": memory,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def write_document(path: Path, doc: Mapping[str, Any]) -> None:
    """Writes it in full or not at all.

    Raises:
        ConfigError: the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(plain(doc)), indent=1) + b"\n")
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def read_document(path: Path, kind: str) -> dict[str, Any]:
    """A document of that kind.

    Raises:
        ConfigError: no such file, or it is something else.
    """
    doc = _parse(_read(path), f"{path}")
    if doc.get("format") != FORMAT:
        raise ConfigError(f"{path}: not a document of this program: it has no format {FORMAT!r}")
    if doc.get("version") != VERSION:
        raise ConfigError(f"{path}: version {doc.get('version')!r} of the format; this program reads {VERSION}")
    if doc.get("kind") != kind:
        raise ConfigError(f"{path}: a document of kind {doc.get('kind')!r}; {kind!r} is needed here")
    for part in ("setup", "results"):
        if not isinstance(doc.get(part), dict):
            raise ConfigError(f"{path}: {part} is no object")
    return doc


class CallLog:
    """A log that grows while a run goes on, and outlives it: each line is with the system before the next is made.

    Opening an existing log goes on behind its last whole line; the torn one that a kill leaves is cut off.

    Raises:
        ConfigError: it cannot be opened, or it is no log.
    """

    def __init__(self, path: Path) -> None:
        whole = _whole_lines(path) if path.exists() else b""
        try:
            self._file = path.open("ab", buffering=0)
            self._file.truncate(len(whole))
            if whole and not whole.endswith(b"\n"):
                self._file.write(b"\n")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None

    def append(self, record: Call | Mapping[str, Any]) -> None:
        line = call_to_json(record) if isinstance(record, Call) else plain(record)
        self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """The objects of a `CallLog`, in order; a torn last line is left out.

    Raises:
        ConfigError: no such file, or another line is no JSON object.
    """
    lines = _whole_lines(path).split(b"\n")
    return [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def call_to_json(call: Call) -> dict[str, Any]:
    """Every field; chunks as columns, which are a quarter of the size."""
    data: dict[str, Any] = plain(call)
    data["chunks"] = {name: [chunk[name] for chunk in data["chunks"]] for name in _CHUNK}
    return data


def call_from_json(data: Mapping[str, Any]) -> Call:
    """What `call_to_json` made.

    Raises:
        ConfigError: it is something else.
    """
    try:
        columns = data["chunks"]
        rows = zip(*(columns[name] for name in _CHUNK), strict=True)
        chunks = [dict(zip(_CHUNK, row, strict=True)) for row in rows]
        return msgspec.convert({**data, "chunks": chunks}, Call)
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"this is no record of a call: {error}") from None


def plain(value: Any) -> Any:
    """As JSON has it: objects, lists, text, numbers; with words in place of infinities."""
    if isinstance(value, float):
        return _plain_float(value)
    if isinstance(value, str):  # half a surrogate pair, which a server may send, is nothing that UTF-8 can hold
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int | None):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return plain(msgspec.to_builtins(value))


def number(value: float | str | None) -> float:
    """A number of a document: ``nan`` for ``null``.

    Raises:
        ConfigError: it is no number.
    """
    if value is None:
        return math.nan
    if value in ("inf", "-inf") or (isinstance(value, int | float) and not isinstance(value, bool)):
        return float(value)
    raise ConfigError(f"{value!r} is no number")


def _plain_float(value: float) -> float | str | None:
    if math.isfinite(value):
        return float(value)
    return None if math.isnan(value) else "inf" if value > 0 else "-inf"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _whole_lines(path: Path) -> bytes:
    """The log without a torn last line: one without an end that is no object either."""
    raw = _read(path)
    cut = raw.rfind(b"\n") + 1
    if raw[cut:].strip():
        try:
            _parse(raw[cut:], f"{path}")
        except ConfigError:
            return raw[:cut]
    return raw


def _parse(raw: bytes, where: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{where}: JSON nested too deeply") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: a JSON object is needed here")
    return value
