"""How many bits each class of tensors takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import get_args

from ultrafast.errors import ConfigError
from ultrafast.models.gguf import GgufFile
from ultrafast.wafer.shape import Kind, Shape

_PARTS: tuple[tuple[str, Kind], ...] = (("token_embd", "embedding"), ("attn_", "attention"), ("output.weight", "head"))

BITS = {
    "fp32": 32.0,
    "fp16": 16.0,
    "bf16": 16.0,
    "fp8": 8.0,
    "int8": 8.0,
    "fp4": 4.25,  # a scale of 8 bits for 32 elements, as in MXFP4 (OCP Microscaling Formats 1.0)
    "int4": 4.5,  # a scale of 16 bits for 32 elements, as in GGUF's Q4_0
}
"""Bits an element, scales included."""


@dataclass(frozen=True)
class Precision:
    """Bits an element of each class of tensors, of the KV cache and of activations.

    ``Precision.parse("fp8")`` has weights and KV cache in 8 bits; ``"fp8,attention=bf16,kv=bf16"`` makes exceptions.
    """

    name: str
    weights: float
    kv: float
    activations: float = 16.0
    exceptions: dict[Kind, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Precision:
        """Read ``FORMAT[,CLASS=FORMAT…]``; classes are those of `Kind`, ``kv`` and ``activations``.

        Raises:
            ConfigError: there is no such format or class.
        """
        first, *rest = (part.strip() for part in text.split(","))
        base = _bits(first, text)
        kv = min(base, 16.0) if base >= 8.0 else 8.0
        activations, exceptions = 16.0, {}
        for part in rest:
            name, _, value = part.partition("=")
            if name == "kv":
                kv = _bits(value, text)
            elif name == "activations":
                activations = _bits(value, text)
            elif name in get_args(Kind):
                exceptions[name] = _bits(value, text)
            else:
                raise ConfigError(
                    f"precision {text!r}: there is no class {name!r}; there are {', '.join(get_args(Kind))}, kv and "
                    "activations"
                )
        return cls(text, base, kv, activations, exceptions)  # type: ignore[arg-type]

    @classmethod
    def of_file(cls, file: GgufFile) -> Precision:
        """As the tensors of a model file are; the KV cache in 16 bits, as this project's engine has it."""
        sizes: dict[Kind, list[int]] = {"head": [0, 0], "embedding": [0, 0], "attention": [0, 0], "dense": [0, 0]}
        for name, tensor in file.tensors.items():
            if len(tensor.shape) > 1:
                kind: Kind = next((kind for part, kind in _PARTS if part in name), "dense")
                sizes[kind][0] += tensor.nbytes * 8
                sizes[kind][1] += math.prod(tensor.shape)
        bits = {kind: total / count for kind, (total, count) in sizes.items() if count}
        bits.setdefault("head", bits.get("embedding", 16.0))  # tied
        return cls("the file's formats", bits.get("dense", 16.0), 16.0, exceptions=bits)

    def bits(self, kind: Kind) -> float:
        """Bits an element of the weights of a class."""
        return self.exceptions.get(kind, self.weights)

    def weight_bytes(self, shape: Shape) -> float:
        """Of all matrices."""
        return sum(matrix.parameters * self.bits(matrix.kind) / 8 for matrix in shape.all_matrices())

    def active_bytes(self, shape: Shape) -> float:
        """Of those that one token is multiplied with."""
        return sum(matrix.active_parameters * self.bits(matrix.kind) / 8 for matrix in shape.all_matrices())

    def kv_bytes(self, shape: Shape, context: int) -> float:
        """Of the KV cache of one sequence."""
        return sum(shape.kv_elements(layer, context) for layer in range(shape.num_layers)) * self.kv / 8


def _bits(name: str, text: str) -> float:
    try:
        return BITS[name]
    except KeyError:
        raise ConfigError(f"precision {text!r}: there is no format {name!r}; there are {', '.join(BITS)}") from None
