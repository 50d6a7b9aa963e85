"""The store of responses: chains, expiry, bounds, several threads and processes, and files that are none."""

from __future__ import annotations

import sqlite3
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ultrafast.config import ServerConfig, parse
from ultrafast.errors import ConfigError
from ultrafast.serving.store import Conversation, ResponseStore, open_store

DAY = 86400.0


class Clock:
    now = 1_796_000_000.0

    def __call__(self) -> float:
        return self.now


def item(text: str) -> dict[str, Any]:
    return {"id": f"msg_{text}", "type": "message", "content": [{"type": "input_text", "text": text}]}


def put(store: ResponseStore, name: str, parent: str | None = None, *, history: Any = (), owner: str = "") -> bool:
    response = {"id": name, "status": "completed", "output": [item(f"out {name}")]}
    return store.put(response, owner=owner, parent=parent, history=history, new=[item(f"in {name}")])


def texts(conversation: Conversation | None) -> list[str]:
    assert conversation is not None
    return [entry["content"][0]["text"] for entry in [*conversation.input, *conversation.output]]


def num_rows(path: Path) -> int:
    with sqlite3.connect(path) as db:
        count = db.execute("SELECT count(*) FROM responses").fetchone()[0]
    db.close()
    assert isinstance(count, int)
    return count


def test_a_conversation_is_stored_once_and_found_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite3"
    store = ResponseStore(path)
    put(store, "a")
    put(store, "b", "a", history=["not looked at"])
    put(store, "c", "b", history=["not looked at"])
    put(store, "fork", "a")
    assert store.response("b", "") == {"id": "b", "status": "completed", "output": [item("out b")]}
    assert texts(store.conversation("c", "")) == ["in a", "out a", "in b", "out b", "in c", "out c"]
    assert texts(store.conversation("fork", "")) == ["in a", "out a", "in fork", "out fork"]
    store.close()
    again = ResponseStore(path)
    assert texts(again.conversation("c", ""))[0] == "in a"
    again.close()


def test_what_continues_from_something_unstored_has_it_all() -> None:
    store = ResponseStore()
    put(store, "b", "a", history=[item("in a"), item("out a")])
    assert texts(store.conversation("b", "")) == ["in a", "out a", "in b", "out b"]
    store.close()


def test_owners_see_only_their_own() -> None:
    store = ResponseStore()
    put(store, "a", owner="me")
    put(store, "b", "a", owner="you", history=[item("what you know")])
    assert store.response("a", "you") is None
    assert store.conversation("a", "you") is None
    assert store.delete("a", "you") is False
    assert texts(store.conversation("b", "you")) == ["what you know", "in b", "out b"]
    assert store.response("a", "me") is not None
    store.close()


def test_a_deleted_turn_stays_only_for_those_that_continue_from_it(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite3"
    store = ResponseStore(path)
    put(store, "a")
    put(store, "b", "a")
    put(store, "c", "b")
    put(store, "fork", "a")
    assert store.delete("a", "")
    assert store.delete("b", "")
    assert not store.delete("b", "")
    assert store.response("b", "") is None
    assert store.conversation("b", "") is None
    assert texts(store.conversation("c", ""))[0] == "in a"
    assert num_rows(path) == 4
    store.delete("c", "")
    assert num_rows(path) == 2, "b and c are gone, and a is there for the fork"
    store.delete("fork", "")
    assert num_rows(path) == 0
    store.close()


def test_responses_expire(tmp_path: Path) -> None:
    path, clock = tmp_path / "r.sqlite3", Clock()
    store = ResponseStore(path, days=2, clock=clock)
    put(store, "a")
    clock.now += DAY
    put(store, "b", "a")
    assert store.response("a", "")
    clock.now += DAY + 1
    assert store.response("a", "") is None, "before anything swept"
    assert store.conversation("a", "") is None
    assert texts(store.conversation("b", ""))[0] == "in a"
    put(store, "other")
    assert num_rows(path) == 3, "b needs a"
    clock.now += DAY
    store.close()
    ResponseStore(path, days=2, clock=clock).close()
    assert num_rows(path) == 1, "swept at the start"


def test_the_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite3"
    limit = 1 << 20
    store = ResponseStore(path, max_bytes=limit)
    for turn in range(300):
        response = {"id": f"r{turn}", "output": [item("x" * 10_000)]}
        assert store.put(response, owner="", parent=f"r{turn - 1}" if turn % 7 else None, history=[], new=[])
    assert store.response("r299", "") is not None
    assert store.response("r0", "") is None
    store.close()
    assert path.stat().st_size < 1.2 * limit


def test_a_sole_response_over_the_bound_is_not_kept() -> None:
    store = ResponseStore(max_bytes=1 << 18)
    assert store.put({"id": "a", "output": [item("x" * (1 << 20))]}, owner="", parent=None, history=[], new=[])
    assert store.response("a", "") is None
    assert put(store, "b")
    assert store.response("b", "") is not None
    store.close()


def test_threads_and_processes_may_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite3"
    stores = [ResponseStore(path), ResponseStore(path)]  # each with a connection of its own, as processes have
    names = [f"{thread}_{turn}" for thread in range(8) for turn in range(25)]

    def work(thread: int) -> None:
        store = stores[thread % 2]
        for turn in range(25):
            parent = f"{thread}_{turn - 1}" if turn else None
            assert put(store, f"{thread}_{turn}", parent)
            assert len(texts(store.conversation(f"{thread}_{turn}", ""))) == 2 * (turn + 1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert all(store.response(name, "") for store in stores for name in names)
    for store in stores:
        store.close()


def test_what_cannot_be_written_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = ResponseStore(tmp_path / "r.sqlite3")
    assert put(store, "a")
    assert not put(store, "a"), "ids are unique"
    assert "response a could not be stored" in caplog.text
    assert put(store, "b"), "nothing is left half done"
    store.close()
    assert not put(store, "c")


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"not a database" * 100, "not a database"), (b"SQLite format 3\0" + b"\xff" * 5000, "cannot store responses")],
)
def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=problem) as caught:
        ResponseStore(path)
    assert str(path) in str(caught.value)
    assert "'store' under [server]" in str(caught.value)
    assert path.read_bytes() == content


def test_a_database_of_another_program_or_version_is_refused(tmp_path: Path) -> None:
    other, newer = tmp_path / "other.sqlite3", tmp_path / "newer.sqlite3"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE responses (id)")
    db.close()
    ResponseStore(newer).close()
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(ConfigError, match="another program"):
        ResponseStore(other)
    with pytest.raises(ConfigError, match="version 99"):
        ResponseStore(newer)


def test_a_file_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot store responses in"):
        ResponseStore(tmp_path / "file" / "r.sqlite3")
    with pytest.raises(ConfigError, match="cannot store responses in"):
        ResponseStore(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="no such permissions there")
def test_only_the_user_may_read_the_file(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path / "new" / "r.sqlite3")
    put(store, "a")
    for path in (tmp_path / "new").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    store.close()


def test_a_configuration_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert open_store("off") is None
    for where in ("memory", str(tmp_path / "here.sqlite3"), None):
        store = open_store(where, days=1)
        assert store is not None
        store.close()
    assert (tmp_path / "here.sqlite3").exists()
    if sys.platform == "linux":
        assert (tmp_path / "state" / "ultrafast" / "responses.sqlite3").exists()
    assert parse('[server]\nstore = "memory"\nstore_days = 7\n', "u.toml").server == ServerConfig(
        store="memory", store_days=7.0
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("store = true", "server.store: expected `str`"),
        ('store = ""', "server.store: expected `str` of length >= 1"),
        ("store_days = 0", "server.store_days: expected `float` > 0"),
        ('store_days = "all"', "server.store_days: expected `float`"),
        ("store_day = 1", "server.store_day: unknown key; did you mean 'store_days'?"),
    ],
)
def test_a_bad_configuration_of_it_names_its_line(line: str, problem: str) -> None:
    with pytest.raises(ConfigError, match="line 3") as caught:
        parse(f"[server]\nport = 1\n{line}\n", "u.toml")
    assert problem in str(caught.value)
