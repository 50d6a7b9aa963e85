"""Model files from the Hugging Face hub, through its own library and cache: ``hf:ORG/REPO[/FILE]``.

The library is imported late; it takes longer to load than everything else a start needs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ultrafast.errors import DownloadError, ModelNotFound

PREFIX = "hf:"

# One piece of a repository or file name. No separators and no leading dot, so no piece leads out of the cache.
_PIECE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ +-]{0,199}")

Progress = Callable[[int, int | None], None]
"""Called with the bytes downloaded so far and, where known, their total."""


def resolve(spec: str, *, download: bool, progress: Progress | None) -> Path:
    """The file of ``hf:ORG/REPO[/FILE]``; without FILE, the only GGUF file of the repository.

    A file that is in the hub's cache is used as it is, without a look at the network.

    Raises:
        ModelNotFound: not such a name, no such repository or file, or several files to choose from.
        DownloadError: the hub cannot be reached, refuses, or sent something else than it announced.
    """
    repo, file = _parse(spec)
    cached = sorted(path for name, path in on_disk() if name == spec or (not file and name.startswith(f"{spec}/")))
    if len(cached) == 1:
        return cached[0]
    if not download:
        raise ModelNotFound(f"{spec} is not on this disk; `ultrafast pull {spec}` gets it")

    import huggingface_hub as hf

    try:
        # One question without retries comes first: the download itself would try for half a minute when offline.
        entries = hf.HfApi().model_info(repo).siblings or ()
        file = _choose(repo, file, [entry.rfilename for entry in entries])
        path = Path(hf.hf_hub_download(repo, file, tqdm_class=_progress_bar(progress)))
    except ModelNotFound:
        raise
    except hf.errors.GatedRepoError as error:
        raise DownloadError(f"{spec} needs an account: accept its terms on the hub and set HF_TOKEN") from error
    except hf.errors.RepositoryNotFoundError as error:
        raise ModelNotFound(f"{spec}: the hub has no such repository, or it is private (then set HF_TOKEN)") from error
    except Exception as error:  # the library lets errors of its HTTP client through, which differs between versions
        raise DownloadError(f"{spec}: download failed: {_first_line(error)}") from error
    _verify(spec, path)
    return path


def on_disk() -> list[tuple[str, Path]]:
    """``(hf:ORG/REPO/FILE, path)`` of the GGUF files in the hub's cache, newest revision of each repository only."""
    from huggingface_hub import constants

    found = []
    for repo in sorted(Path(constants.HF_HUB_CACHE).glob("models--*--*")):
        try:
            revision = (repo / "refs" / "main").read_text().strip()
        except OSError:
            continue
        snapshot = repo / "snapshots" / revision
        name = PREFIX + repo.name.removeprefix("models--").replace("--", "/", 1)
        found += [
            (f"{name}/{path.relative_to(snapshot).as_posix()}", path)
            for path in sorted(snapshot.rglob("*.gguf"))
            if path.is_file()
        ]
    return found


def _parse(spec: str) -> tuple[str, str]:
    """Repository and file ("" for none), each known to be harmless as part of a path."""
    pieces = spec.removeprefix(PREFIX).split("/")
    if len(pieces) < 2 or not _is_harmless(pieces):
        raise ModelNotFound(f"{spec!r:.200} is not a hub model; write hf:ORG/REPO or hf:ORG/REPO/FILE.gguf")
    file = "/".join(pieces[2:])
    if file and not file.endswith(".gguf"):
        raise ModelNotFound(f"{spec!r:.200} does not name a .gguf file")
    return "/".join(pieces[:2]), file


def _is_harmless(pieces: list[str]) -> bool:
    return all(_PIECE.fullmatch(piece) and ".." not in piece for piece in pieces)


def _choose(repo: str, file: str, listed: list[str]) -> str:
    """The file asked for, or the only GGUF file; an error lists what there is to choose from."""
    # What the hub lists becomes part of a path too.
    candidates = sorted(name for name in listed if name.endswith(".gguf") and _is_harmless(name.split("/")))
    if file in candidates:
        return file
    if not file and len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise ModelNotFound(f"{PREFIX}{repo} holds no .gguf file")
    problem = f"no {file}" if file else f"{len(candidates)} .gguf files"
    choice = "\n".join(f"  {PREFIX}{repo}/{name}" for name in candidates)
    raise ModelNotFound(f"{PREFIX}{repo} holds {problem}; name one of:\n{choice}")


def _verify(spec: str, path: Path) -> None:
    """Compare with the SHA-256 under which the hub stores large files: the name of the blob in its cache."""
    blob = path.resolve()
    if not re.fullmatch(r"[0-9a-f]{64}", blob.name):
        return  # a small file, which the hub names by another hash
    with blob.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != blob.name:
        path.unlink()
        blob.unlink(missing_ok=True)
        raise DownloadError(f"{spec}: SHA-256 is {digest}, but the hub announced {blob.name}; the file was removed")


def _progress_bar(progress: Progress | None) -> Any:
    """A bar class for the hub library that draws nothing and reports to ``progress``."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **(kwargs | {"disable": True}))  # type: ignore[no-untyped-call]
            self.done = kwargs.get("initial", 0)
            self.whole = kwargs.get("total")

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
            if progress is not None:
                progress(self.done, self.whole)

    return Bar


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
