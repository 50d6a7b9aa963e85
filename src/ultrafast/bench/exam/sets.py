"""Where question sets come from: the small one shipped here, a file, or the hub, through its own library and cache."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from ultrafast.bench.exam.files import FORMATS, rows_of
from ultrafast.bench.exam.questions import QuestionSet, questions_from
from ultrafast.errors import ConfigError, DownloadError

SAMPLE = "sample"
SAMPLE_NOTE = (
    "The sample is Ultrafast's own set of easy questions, made to try the command out. It is not Humanity's Last Exam "
    "nor any other benchmark, and its accuracy says nothing beside theirs."
)
_HUB = "hf:"


@dataclass(frozen=True, slots=True)
class _OnHub:
    title: str
    repo: str
    files: str  # a glob pattern


KNOWN = {
    "hle": _OnHub("Humanity's Last Exam", "cais/hle", "data/test-*.parquet"),
    "hle-rolling": _OnHub("Humanity's Last Exam, rolling", "cais/hle-rolling", "data/test-*.parquet"),
    "gdpval": _OnHub("GDPval, public set", "openai/gdpval", "data/train-*.parquet"),
}


def load(name: str) -> QuestionSet:
    """A set by name (``sample``, ``hle``, ``hle-rolling``, ``gdpval``), as ``hf:ORG/NAME/FILE``, or by path.

    One from the hub may end in ``@REVISION``; without, it is the newest, and `QuestionSet.source` says which that is.
    With ``HF_HUB_OFFLINE=1`` what is in the hub's cache is used.

    Raises:
        ConfigError: there is no such set, or a row is no question.
        DownloadError: the hub cannot be reached, or refuses.
    """
    if name == SAMPLE:
        with as_file(files("ultrafast.bench.exam").joinpath("sample.jsonl")) as path:
            return QuestionSet(SAMPLE, "shipped with ultrafast", questions_from(rows_of(path)), note=SAMPLE_NOTE)
    base, _, revision = name.partition("@")
    if base in KNOWN:
        known = KNOWN[base]
        return _from_hub(known.title, known.repo, known.files, revision)
    if name.startswith(_HUB):
        org, repo, file = _parsed(name, base)
        return _from_hub(file.rsplit("/")[-1], f"{org}/{repo}", file, revision)
    path = Path(name)
    if not path.is_file():
        raise ConfigError(
            f"{name!r} is neither a file nor a known set: sample, {', '.join(KNOWN)}, or hf:ORG/NAME/FILE"
        )
    return QuestionSet(path.name, "a local file", questions_from(rows_of(path)))


def _parsed(name: str, base: str) -> tuple[str, str, str]:
    """Organisation, repository and file; each piece is harmless in a path and in a pattern."""
    pieces = base.removeprefix(_HUB).split("/")
    harmless = all(
        re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._ +-]{0,199}", piece) and ".." not in piece for piece in pieces
    )
    if len(pieces) < 3 or not harmless or Path(pieces[-1]).suffix.lstrip(".") not in FORMATS:
        raise ConfigError(
            f"{name!r:.200}: a set on the hub is written hf:ORG/NAME/FILE, FILE in .{', .'.join(FORMATS)}"
        )
    return pieces[0], pieces[1], "/".join(pieces[2:])


def _from_hub(title: str, repo: str, pattern: str, revision: str) -> QuestionSet:
    folder = _snapshot(repo, pattern, revision)
    paths = sorted(folder.glob(pattern))
    source = f"{repo} on the hub, revision {folder.name}"
    if not paths:
        raise ConfigError(f"{source}: holds no {pattern}; name the file as hf:{repo}/FILE")

    def rows() -> Iterator[tuple[str, Any]]:
        for path in paths:
            yield from rows_of(path)

    return QuestionSet(title, source, questions_from(rows()))


def _snapshot(repo: str, pattern: str, revision: str) -> Path:
    """The folder, named as the commit is, with the files that match."""
    import huggingface_hub as hf

    page = f"https://huggingface.co/datasets/{repo}"
    try:
        return Path(
            hf.snapshot_download(repo, repo_type="dataset", revision=revision or None, allow_patterns=[pattern])
        )
    except hf.errors.GatedRepoError as error:
        raise DownloadError(
            f"{repo} is gated: accept its terms at {page} with your account, then set HF_TOKEN to a token of it"
        ) from error
    except hf.errors.RevisionNotFoundError as error:
        raise ConfigError(f"{repo} has no revision {revision!r}; its commits are at {page}/commits/main") from error
    except hf.errors.RepositoryNotFoundError as error:
        raise ConfigError(f"the hub has no data set {repo}, or it is private (then set HF_TOKEN)") from error
    except hf.errors.LocalEntryNotFoundError as error:
        raise DownloadError(
            f"{repo} is not in the hub's cache, and the hub cannot be reached (or HF_HUB_OFFLINE is set): "
            "get it once while online, or give a file"
        ) from error
    except Exception as error:  # the library lets errors of its HTTP client through, which differs between versions
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise DownloadError(f"{repo}: download failed: {lines[0]:.300}") from error
