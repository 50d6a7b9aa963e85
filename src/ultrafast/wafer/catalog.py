"""Models and devices by name: those that are known here, and models in files."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from ultrafast.errors import ConfigError
from ultrafast.models import catalog, fetch
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import ModelShape
from ultrafast.wafer.config_json import read_config
from ultrafast.wafer.device import Device, DeviceKind, Figure
from ultrafast.wafer.precision import Precision
from ultrafast.wafer.shape import Experts, Latent, Shape


class _Device(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    kind: DeviceKind
    figures: dict[str, Figure]
    aliases: list[str] = []


class _Model(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    source: str
    tied_embeddings: bool = False
    experts: Experts | None = None
    latent: Latent | None = None
    window: int = 0  # of local layers
    window_every: int = 1  # each so many-th layer attends to everything, the others are local
    aliases: list[str] = []


@cache
def devices() -> Mapping[str, Device]:
    """All devices that are known, by name."""
    known = msgspec.json.decode(_data("devices.json"), type=dict[str, _Device])
    return {name: Device(name, one.title, one.kind, one.figures) for name, one in known.items()}


@cache
def models() -> Mapping[str, Shape]:
    """All models that are known, by name."""
    return {name: _shape(one) for name, one in _known_models().items()}


def device(name: str) -> Device:
    """A device by its name or one of its others, in any case.

    Raises:
        ConfigError: there is none; the message has names that are like it.
    """
    known = msgspec.json.decode(_data("devices.json"), type=dict[str, _Device])
    return devices()[_find(name, {key: one.aliases for key, one in known.items()}, "device")]


def model(name: str) -> Shape:
    """A model by its name here, or from a GGUF file (or the name of one that the engine knows), a Hugging Face
    ``config.json`` or the folder of one.

    Raises:
        ConfigError: there is no such model, or the file is no description of one.
        ModelFileError: the GGUF file is malformed or not supported.
        DownloadError: a model that the engine knows cannot be had.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        path /= "config.json"
    if path.suffix == ".json" and path.is_file():
        return read_config(path)
    if name in catalog.KNOWN or path.suffix == ".gguf":
        with GgufFile(fetch.resolve(name)) as file:
            return _from_gguf(ModelShape.from_gguf(file), name)
    return models()[_find(name, {key: one.aliases for key, one in _known_models().items()}, "model")]


def precision(model: str, asked: str | None) -> Precision:
    """The precision to plan a model with: what was asked for, else that of its file, else 16 bits.

    Raises:
        ConfigError: see `Precision.parse`.
    """
    if asked is not None:
        return Precision.parse(asked)
    if model in catalog.KNOWN or Path(model).suffix == ".gguf":
        with GgufFile(fetch.resolve(model)) as file:
            return Precision.of_file(file)
    return Precision.parse("bf16")


def _from_gguf(shape: ModelShape, source: str) -> Shape:
    return Shape(
        name=shape.name,
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab_size,
        max_context=shape.max_context,
        tied_embeddings=shape.tied_embeddings,
        windows=shape.windows if any(shape.windows) else (),
        source=source,
    )


def _shape(one: _Model) -> Shape:
    local = one.window and one.window_every > 1
    windows = tuple(one.window * bool((n + 1) % one.window_every) for n in range(one.num_layers)) if local else ()
    fields = msgspec.structs.asdict(one)
    for name in ("title", "window", "window_every", "aliases"):
        del fields[name]
    return Shape(name=one.title, windows=windows, **fields)


@cache
def _known_models() -> Mapping[str, _Model]:
    return msgspec.json.decode(_data("models.json"), type=dict[str, _Model])


def _data(name: str) -> bytes:
    return (resources.files("ultrafast.wafer") / "data" / name).read_bytes()


def _find(asked: str, names: Mapping[str, Iterable[str]], kind: str) -> str:
    """The name that ``asked`` means, whatever its case and separators."""
    meant = {_folded(alias): name for name, aliases in names.items() for alias in (name, *aliases)}
    found = meant.get(_folded(asked))
    if found is not None:
        return found
    close = dict.fromkeys(meant[name] for name in difflib.get_close_matches(_folded(asked), meant, n=3, cutoff=0.5))
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
    extra = ", and no GGUF file or config.json of that name" if kind == "model" else ""
    raise ConfigError(f"there is no {kind} {asked[:100]!r} in the catalogue{extra}; {hint}")


def _folded(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")
