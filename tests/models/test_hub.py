"""`hf:ORG/REPO[/FILE]` against a hub on the loopback interface, and against its cache alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from support.fake_hub import COMMIT, FakeHub, fake_hub
from ultrafast.errors import DownloadError, ModelNotFound
from ultrafast.models import catalog, fetch

MODEL = os.urandom(3 << 20)
FILES = {
    "org/one": {"README.md": b"#", "model.gguf": MODEL},
    "org/two": {"a.gguf": b"a", "sub/b.gguf": b"b"},
    "org/none": {"README.md": b"#"},
    "org/evil": {"../../escaped.gguf": b"evil", "a%2F..%2Fb.gguf": b"evil"},
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 18)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    with fake_hub(FILES) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        huggingface_hub.close_session()
        yield hub
    huggingface_hub.close_session()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setattr("socket.socket.connect", refuse)


def gguf_files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and path.suffix in (".gguf", ".incomplete")]


@pytest.mark.parametrize("spec", ["hf:org/one", "hf:org/one/model.gguf"])
def test_download_and_then_no_network(hub: FakeHub, spec: str) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch.resolve(spec, progress=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == MODEL
    assert seen[-1] == (len(MODEL), len(MODEL))
    hub.requests.clear()
    assert fetch.resolve(spec) == fetch.resolve("hf:org/one/model.gguf", download=False) == path
    assert hub.requests == []
    assert catalog.on_disk()[-1] == catalog.ModelOnDisk("hf:org/one/model.gguf", path, len(MODEL))


def test_file_in_a_folder(hub: FakeHub) -> None:
    assert fetch.resolve("hf:org/two/sub/b.gguf").read_bytes() == b"b"


def test_an_interrupted_download_goes_on_where_it_stopped(hub: FakeHub) -> None:
    hub.cut_after = 1 << 20
    assert fetch.resolve("hf:org/one").read_bytes() == MODEL
    ranges = [wanted for method, path, wanted in hub.requests if method == "GET" and path.endswith(".gguf")]
    assert ranges == [None, f"bytes={1 << 20}-"]


def test_a_broken_off_download_leaves_nothing(hub: FakeHub, tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.resolve("hf:org/one", progress=interrupt)
    assert gguf_files(tmp_path / "hub") == []
    assert fetch.resolve("hf:org/one").read_bytes() == MODEL


def test_other_bytes_than_announced_are_removed(hub: FakeHub, tmp_path: Path) -> None:
    hub.corrupt = True
    with pytest.raises(DownloadError, match=r"SHA-256 is [0-9a-f]{64}, but the hub announced"):
        fetch.resolve("hf:org/one")
    assert gguf_files(tmp_path / "hub") == []
    hub.corrupt = False
    assert fetch.resolve("hf:org/one").read_bytes() == MODEL


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("hf:org/two", "holds 2 .gguf files; name one of:\n  hf:org/two/a.gguf\n  hf:org/two/sub/b.gguf"),
        ("hf:org/one/other.gguf", "hf:org/one holds no other.gguf; name one of:\n  hf:org/one/model.gguf"),
        ("hf:org/none", "hf:org/none holds no .gguf file"),
        ("hf:org/evil", "hf:org/evil holds no .gguf file"),
        ("hf:org/missing", "hf:org/missing: the hub has no such repository"),
    ],
)
def test_not_found(hub: FakeHub, spec: str, message: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        fetch.resolve(spec)
    assert message in str(caught.value)


def test_gated(hub: FakeHub) -> None:
    hub.gated = True
    with pytest.raises(DownloadError, match="accept its terms on the hub and set HF_TOKEN"):
        fetch.resolve("hf:org/one")


def test_hub_out_of_reach(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match="hf:org/one: download failed"):
        fetch.resolve("hf:org/one")


@pytest.mark.parametrize(
    "spec",
    [
        "hf:",
        "hf:org",
        "hf:org/",
        "hf:/org/one",
        "hf:../one/model.gguf",
        "hf:org/../model.gguf",
        "hf:org/one/../../../x.gguf",
        "hf:org/one//x.gguf",
        "hf:org/one//etc/x.gguf",
        "hf:org/one/.hidden.gguf",
        "hf:org/one/%2e%2e/x.gguf",
        "hf:org/one/a\\..\\x.gguf",
        "hf:org/one/x\0.gguf",
        "hf:org/one/x\n.gguf",
        "hf:org/one/model.bin",
        "hf:org/" + "x" * 500,
    ],
)
def test_names_that_are_refused_before_any_request(hub: FakeHub, spec: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        fetch.resolve(spec)
    assert str(caught.value).isprintable()
    assert hub.requests == []


@pytest.mark.usefixtures("no_network")
def test_cache_of_the_hub_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repo = tmp_path / "models--some--thing"
    for commit in (COMMIT, "f" * 40):
        snapshot = repo / "snapshots" / commit
        (snapshot / "sub").mkdir(parents=True)
        (snapshot / "a.gguf").write_bytes(b"a")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    (tmp_path / "models--no--refs").mkdir()
    path = repo / "snapshots" / COMMIT / "a.gguf"
    assert fetch.resolve("hf:some/thing") == fetch.resolve("hf:some/thing/a.gguf") == path
    assert fetch.resolve("hf:some/thing/a.gguf").read_bytes() == b"a"
    with pytest.raises(ModelNotFound, match=r"ultrafast pull hf:some/thing/b\.gguf"):
        fetch.resolve("hf:some/thing/b.gguf", download=False)
