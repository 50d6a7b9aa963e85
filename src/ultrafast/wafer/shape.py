"""What a model is to a planner: its matrices, layer by layer, and what one token adds to the KV cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ultrafast.errors import ConfigError

Kind = Literal["attention", "dense", "expert", "router", "head", "embedding"]
"""Classes of tensors; each may have a precision of its own."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight matrix of a layer, or ``count`` alike of them.

    Attributes:
        rows, columns: outputs and inputs.
        count: how many there are.
        active: how many of them one token goes through.
    """

    name: str
    kind: Kind
    rows: int
    columns: int
    count: int = 1
    active: int = 1

    @property
    def parameters(self) -> int:
        return self.rows * self.columns * self.count

    @property
    def active_parameters(self) -> int:
        """Of those, the ones that one token is multiplied with."""
        return self.rows * self.columns * self.active


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of the dense feed-forward network.

    Attributes:
        count, active: routed experts of a layer; of these, those that a token goes through.
        shared: experts that every token goes through.
        intermediate_size: of each.
        dense_layers: the first so many layers are dense.
        every: of the others, each so many-th has experts, and the rest are dense.
    """

    count: int
    active: int
    intermediate_size: int
    shared: int = 0
    dense_layers: int = 0
    every: int = 1

    def in_layer(self, layer: int) -> bool:
        """Whether that layer has experts."""
        return layer >= self.dense_layers and (layer - self.dense_layers) % self.every == self.every - 1


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): the cache holds one compressed vector a token.

    Attributes:
        q_rank: of the query's compression; None: queries are not compressed.
        kv_rank: elements of the compressed key and value.
        rope_dim: elements of the rotated key that all heads share.
        nope_dim, value_dim: of one head.
    """

    q_rank: int | None
    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int


@dataclass(frozen=True)
class Shape:
    """A decoder-only transformer with a gated feed-forward network (three matrices).

    Attributes:
        intermediate_size: of the dense layers.
        windows: of each layer, how many last positions it attends to; 0 for all; empty: all layers attend to all.
        source: where the figures are from.

    Raises:
        ConfigError: a size is not positive, or sizes contradict each other.
    """

    name: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    tied_embeddings: bool = False
    windows: tuple[int, ...] = ()
    experts: Experts | None = None
    latent: Latent | None = None
    source: str = ""

    def __post_init__(self) -> None:
        for field in (
            "num_layers",
            "hidden_size",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "vocab_size",
            "max_context",
        ):
            if getattr(self, field) < 1:
                raise ConfigError(f"{self.name}: {field} is {getattr(self, field)}; it must be at least 1")
        if self.intermediate_size < 1 and not all(map(self._has_experts, range(self.num_layers))):
            raise ConfigError(f"{self.name}: intermediate_size is {self.intermediate_size}; it must be at least 1")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(f"{self.name}: {self.num_kv_heads} KV heads do not divide the {self.num_heads} heads")
        if self.windows and len(self.windows) != self.num_layers:
            raise ConfigError(f"{self.name}: {len(self.windows)} windows for {self.num_layers} layers")
        experts = self.experts
        if experts is not None and not 1 <= experts.active <= experts.count:
            raise ConfigError(f"{self.name}: a token cannot go through {experts.active} of {experts.count} experts")
        if experts is not None and not 0 <= experts.dense_layers <= self.num_layers:
            raise ConfigError(f"{self.name}: {experts.dense_layers} of {self.num_layers} layers cannot be dense")

    def matrices(self, layer: int) -> tuple[Matrix, ...]:
        """All matrices of a layer, in the order in which a token meets them."""
        return (*self._attention(), *self._feed_forward(layer))

    @property
    def head(self) -> Matrix:
        """The output projection."""
        return Matrix("head", "head", self.vocab_size, self.hidden_size)

    @property
    def embedding(self) -> Matrix:
        """The token embedding: a token reads one row of it, and multiplies nothing."""
        return Matrix("embedding", "embedding", self.vocab_size, self.hidden_size, active=0)

    def all_matrices(self) -> Iterator[Matrix]:
        """Every matrix that has to lie somewhere; a tied head and embedding are one."""
        for layer in range(self.num_layers):
            yield from self.matrices(layer)
        yield self.head
        if not self.tied_embeddings:
            yield self.embedding

    @cached_property
    def num_parameters(self) -> int:
        """Of all matrices; norms and biases, some millionths, are left out."""
        return sum(matrix.parameters for matrix in self.all_matrices())

    @cached_property
    def num_active_parameters(self) -> int:
        """That one token is multiplied with, the head included."""
        return sum(matrix.active_parameters for matrix in self.all_matrices())

    def kv_elements(self, layer: int, context: int) -> int:
        """Numbers that the KV cache of a layer holds for one sequence of ``context`` positions."""
        window = self.windows[layer] if self.windows else 0
        return self.kv_width * (min(context, window) if window else context)

    @property
    def kv_width(self) -> int:
        """Numbers that one position adds to the KV cache of a layer."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope_dim
        return 2 * self.num_kv_heads * self.head_dim

    def _has_experts(self, layer: int) -> bool:
        return self.experts is not None and self.experts.in_layer(layer)

    def _attention(self) -> tuple[Matrix, ...]:
        heads, hidden, latent = self.num_heads, self.hidden_size, self.latent
        if latent is None:
            q, kv = heads * self.head_dim, self.num_kv_heads * self.head_dim
            sizes = (("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, q))
        else:
            q = heads * (latent.nope_dim + latent.rope_dim)
            down = latent.q_rank
            queries = (("q", q, hidden),) if down is None else (("q_down", down, hidden), ("q_up", q, down))
            sizes = (
                *queries,
                ("kv_down", latent.kv_rank + latent.rope_dim, hidden),
                ("kv_up", heads * (latent.nope_dim + latent.value_dim), latent.kv_rank),
                ("o", hidden, heads * latent.value_dim),
            )
        return tuple(Matrix(name, "attention", rows, columns) for name, rows, columns in sizes)

    def _feed_forward(self, layer: int) -> tuple[Matrix, ...]:
        experts, hidden = self.experts, self.hidden_size
        if experts is None or not experts.in_layer(layer):
            return _gated("", "dense", hidden, self.intermediate_size, 1, 1)
        size = experts.intermediate_size
        routed = _gated("expert_", "expert", hidden, size, experts.count, experts.active)
        shared = _gated("shared_", "expert", hidden, size, experts.shared, experts.shared) if experts.shared else ()
        return (Matrix("router", "router", experts.count, hidden), *routed, *shared)


def _gated(prefix: str, kind: Kind, hidden: int, size: int, count: int, active: int) -> tuple[Matrix, ...]:
    sizes = (("gate", size, hidden), ("up", size, hidden), ("down", hidden, size))
    return tuple(Matrix(f"{prefix}{name}", kind, rows, columns, count, active) for name, rows, columns in sizes)
