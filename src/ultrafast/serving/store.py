"""Stored responses: one SQLite file, or memory. All methods block for as long as a disk does: call them on a thread.

A row is one response with its own input and output, and points at the row that it continues, so that a conversation is
stored once however long it is. A row whose response was deleted or has expired stays, without its body, for as long as
another continues from it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

from ultrafast.errors import ConfigError

DEFAULT_DAYS = 30.0

_APPLICATION_ID = 0x55466173  # "UFas": tells our files from other programs'
_VERSION = 1  # of the schema
_MAX_BYTES = 1 << 30
_MAX_BYTES_IN_MEMORY = 1 << 28
_SWEEP_S = 3600.0  # between two looks for what has expired
_DAY_S = 86400.0

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, parent TEXT, created REAL NOT NULL,
    input BLOB NOT NULL, output BLOB NOT NULL, body BLOB
);
CREATE INDEX IF NOT EXISTS responses_by_parent ON responses (parent) WHERE parent IS NOT NULL;
CREATE INDEX IF NOT EXISTS responses_by_age ON responses (created) WHERE body IS NOT NULL;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
COMMIT;
"""
_CHAIN = """
WITH RECURSIVE chain (input, output, parent, depth) AS (
    SELECT input, output, parent, 0 FROM responses
        WHERE id = ? AND owner = ? AND body IS NOT NULL AND created >= ?
    UNION ALL
    SELECT older.input, older.output, older.parent, depth + 1 FROM chain JOIN responses older ON older.id = chain.parent
) SELECT input, output FROM chain ORDER BY depth DESC
"""

_log = logging.getLogger(__name__)
_Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Of a stored response: all items that went into it, those of earlier turns included, and those that came out."""

    input: list[dict[str, Any]]
    output: list[dict[str, Any]]


class ResponseStore:
    """Keeps responses for some days. Safe from several threads, and one file from several processes.

    Args:
        path: of the file, made with its folder if it is not there; None: memory.
        days: that a response is kept.
        max_bytes: when more is in use, the oldest responses go; None: 1 GiB, or 256 MiB in memory.
        clock: the time of day in seconds.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        days: float = DEFAULT_DAYS,
        max_bytes: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_bytes = max_bytes or (_MAX_BYTES if path else _MAX_BYTES_IN_MEMORY)
        self._keep_s = days * _DAY_S
        self._clock = clock
        self._lock = threading.Lock()
        self._swept = float("-inf")
        try:
            self._db = _open(path)
            with self._transaction():
                self._sweep()
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(
                f"cannot store responses in {path}: {error}; move that file away, or set 'store' under [server] to "
                'another path, "memory" or "off"'
            ) from None

    def put(
        self, response: _Json, *, owner: str, parent: str | None, history: Sequence[_Json], new: Sequence[_Json]
    ) -> bool:
        """Store a response; False if that cannot be done now, and the log says why.

        Args:
            response: the whole object.
            owner: who may see it.
            parent: id of the response that it continues.
            history: the conversation up to then; stored only if ``parent`` is not.
            new: its own input items.
        """
        body = {name: value for name, value in response.items() if name != "output"}
        try:
            with self._transaction() as db:
                if db.execute("SELECT 1 FROM responses WHERE id = ? AND owner = ?", (parent, owner)).fetchone() is None:
                    parent, new = None, [*history, *new]
                db.execute(
                    "INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        response["id"],
                        owner,
                        parent,
                        self._clock(),
                        msgspec.json.encode(new),
                        msgspec.json.encode(response["output"]),
                        msgspec.json.encode(body),
                    ),
                )
                self._sweep()
        except sqlite3.Error:
            _log.exception("response %s could not be stored", response["id"])
            return False
        return True

    def response(self, response_id: str, owner: str) -> dict[str, Any] | None:
        """The response object, or None if it is not there, or somebody else's."""
        with self._lock:
            row = self._db.execute(
                "SELECT body, output FROM responses WHERE id = ? AND owner = ? AND body IS NOT NULL AND created >= ?",
                (response_id, owner, self._oldest()),
            ).fetchone()
        return None if row is None else {**msgspec.json.decode(row[0]), "output": msgspec.json.decode(row[1])}

    def conversation(self, response_id: str, owner: str) -> Conversation | None:
        """What went into a response and came out of it, or None if it is not there, or somebody else's."""
        with self._lock:
            rows = self._db.execute(_CHAIN, (response_id, owner, self._oldest())).fetchall()
        if not rows:
            return None
        items: list[dict[str, Any]] = []
        output: list[dict[str, Any]] = []
        for row in rows:
            items += output + msgspec.json.decode(row[0])
            output = msgspec.json.decode(row[1])
        return Conversation(items, output)

    def delete(self, response_id: str, owner: str) -> bool:
        """Forget a response; False if it is not there, or somebody else's. What continues from it stays whole."""
        with self._transaction() as db:
            found = db.execute(
                "SELECT 1 FROM responses WHERE id = ? AND owner = ? AND body IS NOT NULL", (response_id, owner)
            ).fetchone()
            if found:
                self._drop(response_id)
        return found is not None

    def close(self) -> None:
        """Close the file; nothing may be called afterwards."""
        with self._lock:
            self._db.close()

    def _oldest(self) -> float:
        """When the oldest response that is still kept was made."""
        return self._clock() - self._keep_s

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _sweep(self) -> None:
        """Drop what has expired, if it is time to look, and the oldest of what is too much."""
        now = self._clock()
        if now - self._swept >= _SWEEP_S:
            self._swept = now
            self._drop_all("created < ? ORDER BY created", self._oldest())
        while self._used() > self._max_bytes and self._drop_all("TRUE ORDER BY created LIMIT ?", 16):
            pass

    def _drop_all(self, which: str, value: float) -> int:
        """Drop the responses of which that SQL holds; returns how many there were."""
        found = self._db.execute(f"SELECT id FROM responses WHERE body IS NOT NULL AND {which}", (value,)).fetchall()
        for (response_id,) in found:
            self._drop(response_id)
        return len(found)

    def _used(self) -> int:
        size, pages, free = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
        )
        return int(size * (pages - free))

    def _drop(self, response_id: str) -> None:
        """Take the body of a response, and every row up its conversation that nobody needs any more."""
        self._db.execute("UPDATE responses SET body = NULL WHERE id = ?", (response_id,))
        unneeded: str | None = response_id
        while unneeded is not None:
            row = self._db.execute(
                "DELETE FROM responses WHERE id = ?1 AND body IS NULL "
                "AND NOT EXISTS (SELECT 1 FROM responses child WHERE child.parent = ?1) RETURNING parent",
                (unneeded,),
            ).fetchone()
            unneeded = row and row[0]


def open_store(where: str | None, *, days: float = DEFAULT_DAYS) -> ResponseStore | None:
    """The store that a configuration asks for.

    Args:
        where: a path, ``memory``, ``off`` (None is returned), or None: the user's folder for such files.
        days: that a response is kept.

    Raises:
        ConfigError: the file cannot be used.
    """
    if where == "off":
        return None
    if where == "memory":
        return ResponseStore(days=days)
    if where is None:
        return ResponseStore(platformdirs.user_state_path("ultrafast") / "responses.sqlite3", days=days)
    return ResponseStore(Path(where).expanduser(), days=days)


def _open(path: Path | None) -> sqlite3.Connection:
    """Open or make the file; it is for its owner's eyes only, as conversations are in it."""
    if path is not None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    db = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
    try:
        tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if tables and db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise sqlite3.DatabaseError("it is a database of another program")
        if tables and (version := db.execute("PRAGMA user_version").fetchone()[0]) != _VERSION:
            raise sqlite3.DatabaseError(f"it has schema version {version}, and this program knows {_VERSION}")
        db.execute("PRAGMA journal_mode = WAL")  # several processes may share it
        db.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last responses, never the file
        db.executescript(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db
