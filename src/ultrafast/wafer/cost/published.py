"""Published measurements, and which of them the catalogue covers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from ultrafast.errors import ConfigError
from ultrafast.wafer import catalog
from ultrafast.wafer.device import Device
from ultrafast.wafer.precision import Precision
from ultrafast.wafer.shape import Shape

_DEVICES = {"CS-3 (WSE-3)": "wse-3", "LPU v1": "groq-lpu"}
_MODELS = {"LLaMA3-8B": "llama-3.1-8b"}
_PRECISIONS = {
    "16-bit": "bf16",
    "8-bit": "fp8",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "fp4": "fp4,attention=fp8,kv=fp8",
    "nvfp4 MoE/FFN + bf16 attention": "fp4,attention=bf16,kv=bf16",
}


T = TypeVar("T")


class Record(msgspec.Struct, frozen=True):
    """One published figure, as its source has it.

    Attributes:
        devices_used: None where the source does not say.
        metric: ``value`` is tokens a second, but for ``ttft_s``.
        kind: ``paper`` and ``independent`` are measurements, ``vendor`` ones are mostly the best that a vendor shows.
    """

    id: str
    device: str
    devices_used: int | None
    model: str
    precision: str | None
    metric: Literal["decode_tok_s_user", "prefill_tok_s", "throughput", "ttft_s"]
    value: float
    context: str | None
    speculative: bool | None
    kind: Literal["paper", "vendor", "independent"]
    source_url: str

    @property
    def side(self) -> int | None:
        """PEs along a side of the region, where it is stated."""
        found = re.search(r"(\d+)x\1 cores", self.context or "")
        return int(found[1]) if found else None

    @property
    def lengths(self) -> tuple[int, int] | None:
        """Tokens of input and of output, where both are stated."""
        found = re.search(r"(\d+)(k?) ?/ ?(?:output )?(\d+)(k?)", self.context or "")
        if not found:
            return None
        first, second = (int(found[n]) * (1024 if found[n + 1] else 1) for n in (1, 3))
        return first, second

    @property
    def shape(self) -> Shape | None:
        """The model, if the catalogue has it."""
        return _known(lambda: catalog.model(_MODELS.get(self.model, self.model.removesuffix("-0528"))))

    @property
    def hardware(self) -> Device | None:
        """The device, if the catalogue has it."""
        return _known(lambda: catalog.device(_DEVICES.get(self.device, self.device)))

    @property
    def stated_precision(self) -> Precision | None:
        """None where the source does not say."""
        return Precision.parse(_PRECISIONS[self.precision]) if self.precision in _PRECISIONS else None


@cache
def records() -> Sequence[Record]:
    """Those that come with the planner."""
    return msgspec.json.decode(
        (resources.files("ultrafast.wafer") / "data" / "published.json").read_bytes(), type=list[Record]
    )


def read_records(path: Path) -> Sequence[Record]:
    """Others, from a file of the same form as `data/published.json`.

    Raises:
        ConfigError: it cannot be read, or is no such file.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Record])
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no list of published measurements: {error}") from None


def _known(find: Callable[[], T]) -> T | None:
    try:
        return find()
    except ConfigError:
        return None
