"""Traces of real services: when requests came, how long prompts and answers were, which prompts begin alike.

Three public schemas are read; none of them has text in it.

- Azure LLM inference 2023 and 2024 (github.com/Azure/AzurePublicDataset): CSV with ``TIMESTAMP``, ``ContextTokens``,
  ``GeneratedTokens``.
- BurstGPT (github.com/HPMLL/BurstGPT): CSV with ``Timestamp`` in seconds, ``Request tokens``, ``Response tokens``, and
  columns not used here; requests that failed have 0 response tokens.
- Mooncake (github.com/kvcache-ai/Mooncake): JSON lines with ``timestamp`` in milliseconds, ``input_length``,
  ``output_length`` and ``hash_ids``: one number for each 512 tokens of the prompt, equal where prompts are.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, TextIO

import msgspec

from ultrafast.errors import ConfigError

Format = Literal["azure", "burstgpt", "mooncake"]

BLOCK_TOKENS = 512  # of one hash id in Mooncake's traces
MAX_TOKENS = 10_000_000  # of one request: beyond it the file is taken to be something else


@dataclass(frozen=True, slots=True)
class TraceCall:
    """One request of a trace.

    Attributes:
        start_s: after the first one.
        blocks: ids of the parts that the prompt begins with, each `BLOCK_TOKENS` long but the last.
    """

    start_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """What was read of a file.

    Attributes:
        calls: by start.
        without_answer: requests that got no tokens, because they failed; they are left out.
        shortened: calls with more tokens than was allowed for.
    """

    name: str
    format: Format
    calls: Sequence[TraceCall]
    without_answer: int = 0
    shortened: int = 0

    def within(self, prompt_tokens: int | None, output_tokens: int | None) -> Trace:
        """The same arrivals, with prompts and answers of so many tokens at most."""
        cut = [
            replace(
                call,
                prompt_tokens=min(call.prompt_tokens, prompt_tokens or call.prompt_tokens),
                output_tokens=min(call.output_tokens, output_tokens or call.output_tokens),
            )
            for call in self.calls
        ]
        return replace(self, calls=cut, shortened=sum(map(TraceCall.__ne__, self.calls, cut)))


def read_trace(
    path: Path, format: Format | None = None, *, calls: int | None = None, duration_s: float | None = None
) -> Trace:
    """Reads a trace, or its beginning.

    Args:
        format: ``None``: found out from the first line.
        calls: so many that have an answer, at most.
        duration_s: those within so long after the first, as the trace counts time.

    Raises:
        ConfigError: the file cannot be read, is no such trace, or has no request with an answer in it.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _read(file, path, format, calls, duration_s)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text: {error.reason}") from None


def _read(file: TextIO, path: Path, format: Format | None, calls: int | None, duration_s: float | None) -> Trace:
    first = file.readline(1 << 20)
    schema = format or _format_of(first, path)
    lines = chain([first], file)
    rows = _mooncake(lines, path) if schema == "mooncake" else _csv(lines, path, schema)
    taken: list[TraceCall] = []
    without_answer = 0
    for call in rows:
        if duration_s is not None and taken and call.start_s - taken[0].start_s > duration_s:
            break
        if call.output_tokens == 0:
            without_answer += 1
            continue
        taken.append(call)
        if len(taken) == calls:
            break
    if not taken:
        raise ConfigError(f"{path}: no request with an answer in it")
    taken.sort(key=lambda call: call.start_s)
    begin = taken[0].start_s
    ordered = [replace(call, start_s=call.start_s - begin) for call in taken]
    return Trace(path.name, schema, ordered, without_answer)


def _format_of(line: str, path: Path) -> Format:
    if line.lstrip().startswith("{"):
        return "mooncake"
    names = {name.strip() for name in line.split(",")}
    for schema, columns in _COLUMNS.items():
        if names >= columns:
            return schema
    raise ConfigError(
        f"{path}, line 1: neither JSON lines as Mooncake's nor a CSV header as Azure's (TIMESTAMP,ContextTokens,"
        "GeneratedTokens) or BurstGPT's (Timestamp,…,Request tokens,Response tokens,…)"
    )


def _csv(lines: Iterator[str], path: Path, format: Format) -> Iterator[TraceCall]:
    parse = _azure_row if format == "azure" else _burstgpt_row
    reader = csv.DictReader(lines, skipinitialspace=True, strict=True)
    try:
        missing = _COLUMNS[format] - set(reader.fieldnames or ())
        if missing:
            raise ConfigError(f"{path}, line 1: a trace of {format} has the column {sorted(missing)[0]!r}")
        for row in reader:
            yield _parsed(parse, row, path, reader.line_num)
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.reader.line_num}: not CSV: {error}") from None


def _parsed(
    parse: Callable[[Mapping[str, str | None]], TraceCall], row: Mapping[str, str | None], path: Path, line: int
) -> TraceCall:
    try:
        return parse(row)
    except ValueError as error:
        raise ConfigError(f"{path}, line {line}: {error}") from None


def _azure_row(row: Mapping[str, str | None]) -> TraceCall:
    return TraceCall(_time(row, "TIMESTAMP"), _tokens(row, "ContextTokens"), _tokens(row, "GeneratedTokens"))


def _burstgpt_row(row: Mapping[str, str | None]) -> TraceCall:
    return TraceCall(_seconds(row, "Timestamp"), _tokens(row, "Request tokens"), _tokens(row, "Response tokens"))


_COLUMNS: Mapping[Format, set[str]] = {
    "azure": {"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
    "burstgpt": {"Timestamp", "Request tokens", "Response tokens"},
}


def _time(row: Mapping[str, str | None], name: str) -> float:
    text = (row[name] or "").strip()
    whole, dot, rest = text.partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    if digits > 6:  # of a second: one more than Python reads
        text = whole + dot + rest[:6] + rest[digits:]
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{name} {text[:40]!r} is no time such as 2023-11-16 18:15:46.68") from None


def _seconds(row: Mapping[str, str | None], name: str) -> float:
    text = (row[name] or "").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} {text[:40]!r} is no number of seconds")
    return value


def _tokens(row: Mapping[str, str | None], name: str) -> int:
    text = (row[name] or "").strip()
    whole = text.removesuffix(".0")  # as written by tools that hold columns with gaps as floats
    if not (whole.isascii() and whole.isdigit() and len(whole) < 12 and int(whole) <= MAX_TOKENS):
        raise ValueError(f"{name} {text[:40]!r} is no number of tokens")
    return int(whole)


_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]


class _MooncakeLine(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=1e15)]
    input_length: _Tokens
    output_length: _Tokens
    hash_ids: list[int] = []


def _mooncake(lines: Iterator[str], path: Path) -> Iterator[TraceCall]:
    decoder = msgspec.json.Decoder(_MooncakeLine)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise ConfigError(f"{path}, line {number}: no request of a Mooncake trace: {error}") from None
        yield TraceCall(row.timestamp / 1000, row.input_length, row.output_length, tuple(row.hash_ids))
