"""``ultrafast.toml``: what a server serves, and how. Every error names the file, the line and the key.

What a file does not say is as without a file. docs/configuration.md has all keys.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ultrafast.engine.tiers import DEFAULT, DEFAULT_TIERS, TIERS, Overflow, TierPolicy, Tiers
from ultrafast.errors import ConfigError
from ultrafast.serving.isolation import Isolation
from ultrafast.serving.store import DEFAULT_DAYS

MAX_BYTES = 1 << 20  # of a file: more is not a configuration

_MAX_DEPTH = 5  # of keys: models.NAME.tiers.TIER.KEY
_ENDS = ("]", "}", '"""', "'''")  # what the last of several lines of a value has

_Path = tuple[str, ...]  # of a key: the tables it is in, and its name

_TABLE = dict[str, Any]
_TEXT = Annotated[str, Meta(min_length=1)]
_TOP = {"server": _TABLE, "models": _TABLE}
_SERVER = {
    "host": _TEXT,
    "port": Annotated[int, Meta(ge=0, le=65535)],
    "isolate_cache": Isolation,
    "store": _TEXT,
    "store_days": Annotated[float, Meta(gt=0, le=36500)],
}
_MODEL = {
    "threads": Annotated[int, Meta(ge=1, le=1024)],
    "isa": _TEXT,
    "context": Annotated[int, Meta(ge=1)],
    "draft_model": _TEXT,
    "cache_mib": Annotated[int, Meta(ge=0, le=1 << 20)],
    "share": Annotated[float, Meta(ge=0.05, le=0.99)],
    "tiers": _TABLE,
}
_TIER = {
    "slots": Annotated[int, Meta(ge=0, le=256)],
    "queue": Annotated[int, Meta(ge=0, le=65536)],
    "overflow": Overflow,
    "queue_timeout_s": Annotated[float, Meta(gt=0, le=86400)],
    "speculation": bool,
    "price": Annotated[float, Meta(ge=0, le=1e6)],
}


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The table ``[server]``; ``store`` and ``store_days`` as `open_store` takes them."""

    host: str = "127.0.0.1"
    port: int = 8000
    isolate_cache: Isolation = Isolation.NONE
    store: str | None = None
    store_days: float = DEFAULT_DAYS


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A table ``[models."NAME"]``; None: as `Engine` chooses."""

    threads: int | None = None
    isa: str | None = None
    context: int | None = None
    draft_model: str | None = None
    cache_mib: int | None = None
    tiers: Tiers = DEFAULT_TIERS

    def engine_options(self) -> dict[str, Any]:
        """What is set, as arguments of `Engine`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Config:
    """A whole file. ``models``: by name, path or ``hf:…``, as `Engine` takes them."""

    server: ServerConfig = ServerConfig()
    models: Mapping[str, ModelConfig] = field(default_factory=dict)


def load(path: Path) -> Config:
    """Read a configuration file.

    Raises:
        ConfigError: it cannot be read, is no TOML, or has a key that is unknown, of the wrong type or out of range.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES >> 20} MiB: that is no configuration")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: not UTF-8") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Config:
    """The configuration in ``text``; ``name`` is that of its file, for messages. Raises what `load` raises."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _syntax_error(error, text, name) from None
    return _Reader(text, name).config(document)


def _syntax_error(error: Exception, text: str, name: str) -> ConfigError:
    problem = str(error)
    at = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", problem)
    if at is None:  # a number of thousands of digits, brackets nested by the hundred
        return ConfigError(f"{name}: not valid TOML: {problem}")
    line, column = (at[1], f", column {at[2]}") if at[1] else (len(text.rstrip().split("\n")), "")
    return ConfigError(f"{name}, line {line}{column}: not valid TOML: {problem[: at.start()]}")


class _Reader:
    """Checks a document, table by table."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name

    def config(self, document: dict[str, Any]) -> Config:
        top = self._values(document, _TOP, ())
        server = ServerConfig(**self._values(top.get("server", {}), _SERVER, ("server",)))
        models = top.get("models", {})
        return Config(server, {name: self._model(table, ("models", name)) for name, table in models.items()})

    def _model(self, table: Any, path: _Path) -> ModelConfig:
        if not path[-1]:
            raise self._error(path, "a model needs a name")
        values = self._values(self._converted(table, _TABLE, path), _MODEL, path)
        share = values.pop("share", DEFAULT_TIERS.share)
        changed = self._values(values.pop("tiers", {}), dict.fromkeys(TIERS, _TABLE), (*path, "tiers"))
        policies = {tier: self._policy(tier, changed.get(tier, {}), (*path, "tiers", tier)) for tier in TIERS}
        return ModelConfig(**values, tiers=Tiers(policies, share))

    def _policy(self, tier: str, table: dict[str, Any], path: _Path) -> TierPolicy:
        policy = replace(DEFAULT_TIERS.policies[tier], **self._values(table, _TIER, path))
        if tier == DEFAULT and policy.overflow is Overflow.DEFAULT:
            raise self._error((*path, "overflow"), "the default tier cannot overflow into itself; use queue or reject")
        if tier == DEFAULT and policy.slots == 0:
            raise self._error((*path, "slots"), "the default tier needs at least one slot")
        if policy.slots == 0 and policy.overflow is Overflow.QUEUE:
            raise self._error(
                (*path, "slots"), "without slots, waiting for one is in vain: set overflow to reject or default"
            )
        return policy

    def _values(self, table: dict[str, Any], known: Mapping[str, Any], path: _Path) -> dict[str, Any]:
        """The table with every value checked and converted."""
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise self._error((*path, key), f"unknown key; {hint}")
        return {key: self._converted(value, known[key], (*path, key)) for key, value in table.items()}

    def _converted(self, value: Any, type: Any, path: _Path) -> Any:
        if type in (Isolation, Overflow) and value not in list(type):
            choices = ", ".join(repr(choice.value) for choice in type)
            raise self._error(path, f"must be one of {choices}, not {_shown(value)}")
        try:
            return msgspec.convert(value, type)
        except msgspec.ValidationError as error:
            problem = str(error).replace("`object`", "a table")
            problem = problem[0].lower() + problem[1:]
            raise self._error(path, problem if ", got " in problem else f"{problem}, not {_shown(value)}") from None

    def _error(self, path: _Path, problem: str) -> ConfigError:
        lines = _lines(self._text)
        where = next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 1)
        return ConfigError(f"{self._name}, line {where}: {_dotted(path)}: {problem}")


def _lines(text: str) -> dict[_Path, int]:
    """The line where each table and key of a valid document first is.

    A header, or a key with its value, is a document by itself as soon as its last line is there.
    """
    lines: dict[_Path, int] = {}
    table: _Path = ()
    statement, start = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        if not statement:
            start = number
        statement += line + "\n"
        if number > start and not any(end in line for end in _ENDS):
            continue
        try:
            parsed = tomllib.loads(statement)
        except (ValueError, RecursionError):
            continue
        paths = list(_paths(parsed, _MAX_DEPTH))
        if statement.lstrip().startswith("["):
            table = paths[-1]
        else:
            paths = [table + path for path in paths]
        for path in paths:
            lines.setdefault(path, start)
        statement = ""
    return lines


def _paths(table: dict[str, Any], depth: int) -> Iterator[_Path]:
    for key, value in table.items():
        yield (key,)
        if isinstance(value, dict) and depth > 1:
            yield from ((key, *path) for path in _paths(value, depth - 1))


def _dotted(path: _Path) -> str:
    """A path as TOML writes it."""
    return ".".join(key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key) for key in path)


def _shown(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, bool | str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
