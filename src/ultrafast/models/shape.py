"""The sizes of a model, read from its file and checked against every tensor.

After ``ModelShape.from_gguf`` nothing about the file is in doubt: each tensor that the engine will read is there, has
the rows and columns that the sizes say and a type that the engine knows, and nothing is there that the engine
would wrongly leave out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from ultrafast.errors import ModelFileError
from ultrafast.models.architectures import ARCHITECTURES, Architecture, layer_windows, query_scale
from ultrafast.models.ggml_type import GgmlType
from ultrafast.models.gguf import GgufFile
from ultrafast.models.metadata import Metadata
from ultrafast.models.rope import local_rope_inv_freq, rope_inv_freq

VECTOR_TYPES = (GgmlType.F32, GgmlType.F16, GgmlType.BF16)
MATRIX_TYPES = (
    *VECTOR_TYPES,
    *(GgmlType.Q4_0, GgmlType.Q4_1, GgmlType.Q5_0, GgmlType.Q5_1, GgmlType.Q8_0),
    *(GgmlType.Q4_K, GgmlType.Q5_K, GgmlType.Q6_K),
)

_MAX_SIZE = (1 << 31) - 1  # native code counts with 32 bits
_TENSORS_PER_LAYER = 9

# Old files store the inverse frequencies once more in each layer; they follow from the metadata.
_HARMLESS = re.compile(r"rope_freqs\.weight|blk\.\d+\.attn_rot_embd\.weight")

# Settings of relatives of the architecture, with the one value under which they change nothing.
_NEUTRAL = {
    "attention.causal": True,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "attention.scale": 0.0,
    "attn_logit_softcapping": 0.0,
    "embedding_scale": 1.0,
    "expert_count": 0,
    "final_logit_softcapping": 0.0,
    "logit_scale": 1.0,
    "residual_scale": 1.0,
    "use_parallel_residual": False,
}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a model, and what its architecture makes of them.

    Attributes:
        head_dim: elements of one head of Q, K and V.
        rope_dim: how many elements of a head are rotated, even.
        max_context: tokens the model was trained for, cut to its sliding window if all layers have one.
        rms_norm_eps: added to the mean square in every RMS norm.
        query_scale: attention scores are this times the dot products.
        embedding_scale: what token embeddings are multiplied with.
        windows: of each layer the number of last positions that it attends to (a local layer), or 0 for all.
        rope_inv_freq: ``rope_dim / 2`` angles in radians per position, RoPE scaling applied.
        local_rope_inv_freq: the same of local layers; empty if there are none.
        qkv_bias: Q, K and V projections add a bias.
        rope_halves, qk_norm, post_norms, gelu: see `Architecture`.
        tied_embeddings: the output projection is the token embedding.
        num_parameters: elements of all tensors that the engine reads.
    """

    architecture: str
    name: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_dim: int
    vocab_size: int
    max_context: int
    rms_norm_eps: float
    query_scale: float
    embedding_scale: float
    windows: tuple[int, ...]
    rope_inv_freq: tuple[float, ...]
    local_rope_inv_freq: tuple[float, ...]
    rope_halves: bool
    qk_norm: bool
    post_norms: bool
    gelu: bool
    qkv_bias: bool
    tied_embeddings: bool

    @classmethod
    def from_gguf(cls, file: GgufFile) -> Self:
        """Read and check the shape.

        Raises:
            ModelFileError: the architecture, a setting, a tensor or a tensor type is not supported, or sizes and
                tensors disagree; the message names the key or tensor.
        """
        meta = Metadata(file)
        architecture = meta.text("general.architecture")
        if architecture not in ARCHITECTURES:
            raise ModelFileError(
                file.path, f"architecture {architecture!r:.80} is not supported; supported: {', '.join(ARCHITECTURES)}"
            )
        traits = ARCHITECTURES[architecture]
        meta.prefix = f"{architecture}."
        _refuse_unsupported(meta)
        num_layers = meta.integer("block_count", 1, _MAX_SIZE)
        if num_layers * _TENSORS_PER_LAYER > len(file.tensors):
            meta.fail(
                "block_count",
                f"is {num_layers}, which needs at least {num_layers * _TENSORS_PER_LAYER} tensors; "
                f"the file has {len(file.tensors)}",
            )
        hidden_size = meta.integer("embedding_length", 1, _MAX_SIZE)
        num_heads = meta.integer_of_layers("attention.head_count", num_layers, hidden_size)
        num_kv_heads = _num_kv_heads(meta, num_layers, num_heads)
        head_dim = _head_dim(meta, hidden_size, num_heads)
        shape = cls(
            architecture=architecture,
            name=meta.text("general.name", default=Path(file.path).stem),
            num_layers=num_layers,
            hidden_size=hidden_size,
            intermediate_size=meta.integer_of_layers("feed_forward_length", num_layers, _MAX_SIZE),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            rope_dim=_even(meta, "rope.dimension_count", meta.integer("rope.dimension_count", 2, head_dim, head_dim)),
            vocab_size=_vocab_size(file, meta),
            max_context=_max_context(meta, traits.local_layers),
            rms_norm_eps=meta.number("attention.layer_norm_rms_epsilon"),
            query_scale=query_scale(architecture, num_layers, hidden_size, num_heads, head_dim),
            embedding_scale=hidden_size**0.5 if traits.scaled_embedding else 1.0,
            windows=layer_windows(meta, architecture, num_layers, _MAX_SIZE),
            rope_inv_freq=(),
            local_rope_inv_freq=(),
            rope_halves=traits.rope_halves,
            qk_norm=traits.qk_norm,
            post_norms=traits.post_norms,
            gelu=traits.gelu,
            qkv_bias=_qkv_bias(file, traits),
            tied_embeddings="output.weight" not in file.tensors,
        )
        shape._check_tensors(file)
        # Only now is rope_dim known to be no larger than a tensor of the file.
        return replace(
            shape,
            rope_inv_freq=rope_inv_freq(file, meta, shape.rope_dim),
            local_rope_inv_freq=local_rope_inv_freq(meta, shape.rope_dim) if any(shape.windows) else (),
        )

    def tensor_names(self) -> Iterator[tuple[str, int, int]]:
        """``(name, rows, columns)`` of every tensor the engine reads; a vector is one row."""
        q_size, kv_size = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        yield "token_embd.weight", self.vocab_size, self.hidden_size
        for layer in range(self.num_layers):
            block = f"blk.{layer}."
            yield block + "attn_norm.weight", 1, self.hidden_size
            for part, rows in (("q", q_size), ("k", kv_size), ("v", kv_size)):
                yield f"{block}attn_{part}.weight", rows, self.hidden_size
                if self.qkv_bias:
                    yield f"{block}attn_{part}.bias", 1, rows
                if self.qk_norm and part != "v":
                    yield f"{block}attn_{part}_norm.weight", 1, self.head_dim
            yield block + "attn_output.weight", self.hidden_size, q_size
            if self.post_norms:
                yield block + "post_attention_norm.weight", 1, self.hidden_size
                yield block + "post_ffw_norm.weight", 1, self.hidden_size
            yield block + "ffn_norm.weight", 1, self.hidden_size
            yield block + "ffn_gate.weight", self.intermediate_size, self.hidden_size
            yield block + "ffn_up.weight", self.intermediate_size, self.hidden_size
            yield block + "ffn_down.weight", self.hidden_size, self.intermediate_size
        yield "output_norm.weight", 1, self.hidden_size
        if not self.tied_embeddings:
            yield "output.weight", self.vocab_size, self.hidden_size

    @property
    def num_parameters(self) -> int:
        return sum(rows * columns for _, rows, columns in self.tensor_names())

    def _check_tensors(self, file: GgufFile) -> None:
        needed = set()
        for name, rows, columns in self.tensor_names():
            needed.add(name)
            tensor = file.tensors.get(name)
            if tensor is None:
                raise ModelFileError(file.path, f"tensor {name!r} is missing")
            vector = name.endswith(("norm.weight", ".bias"))
            expected = (columns,) if vector else (rows, columns)
            if tensor.shape != expected:
                raise ModelFileError(
                    file.path, f"tensor {name!r} has shape {tensor.shape}; the sizes in the metadata say {expected}"
                )
            supported = VECTOR_TYPES if vector else MATRIX_TYPES
            if tensor.type not in supported:
                raise ModelFileError(
                    file.path,
                    f"tensor {name!r} has type {tensor.type.name}, which is not supported; "
                    f"supported: {', '.join(type_.name for type_ in supported)}",
                )
        unknown = sorted(name for name in file.tensors.keys() - needed if not _HARMLESS.fullmatch(name))
        if unknown:
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            raise ModelFileError(
                file.path,
                f"unexpected tensors {', '.join(map(repr, unknown[:5]))}{more}: this variant of "
                f"{self.architecture} is not supported",
            )


def _refuse_unsupported(meta: Metadata) -> None:
    """Refuse what would give wrong results if it were overlooked."""
    if meta.integer("split.count", 0, _MAX_SIZE, 0) > 1:
        raise ModelFileError(meta.path, "is one part of a model split over several files; merge them first")
    for key, neutral in _NEUTRAL.items():
        value = meta.get(key)
        if value is not None and value != neutral:
            meta.fail(key, f"is {value!r:.80}; only {neutral} is supported")


def _num_kv_heads(meta: Metadata, num_layers: int, num_heads: int) -> int:
    num_kv_heads = meta.integer_of_layers("attention.head_count_kv", num_layers, num_heads, default=num_heads)
    if num_heads % num_kv_heads:
        meta.fail("attention.head_count_kv", f"is {num_kv_heads}, which does not divide the {num_heads} heads")
    return num_kv_heads


def _head_dim(meta: Metadata, hidden_size: int, num_heads: int) -> int:
    default = hidden_size // num_heads
    head_dim = meta.integer("attention.key_length", 2, _MAX_SIZE, default)
    if meta.get("attention.key_length") is None and hidden_size % num_heads:
        meta.fail("attention.head_count", f"is {num_heads}, which does not divide embedding_length {hidden_size}")
    value_length = meta.integer("attention.value_length", 2, _MAX_SIZE, default)
    if value_length != head_dim:
        meta.fail("attention.value_length", f"is {value_length}; it must equal the key length, {head_dim}")
    return _even(meta, "attention.key_length", head_dim)


def _even(meta: Metadata, key: str, size: int) -> int:
    if size % 2:
        meta.fail(key, f"is {size}; it must be even")
    return size


def _vocab_size(file: GgufFile, meta: Metadata) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelFileError(file.path, "tensor 'token_embd.weight' is missing")
    size = embedding.shape[0]
    stated = meta.integer("vocab_size", 1, _MAX_SIZE, size)
    if stated != size:
        meta.fail("vocab_size", f"is {stated}, but 'token_embd.weight' has {size} rows")
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) != size:
        raise ModelFileError(
            file.path,
            f"metadata key 'tokenizer.ggml.tokens' has {len(tokens)} tokens, but 'token_embd.weight' has {size} rows",
        )
    return size


def _qkv_bias(file: GgufFile, traits: Architecture) -> bool:
    if traits.qkv_bias is not None:
        return traits.qkv_bias
    return any(f"blk.0.attn_{part}.bias" in file.tensors for part in "qkv")


def _max_context(meta: Metadata, local_layers: bool) -> int:
    context = meta.integer("context_length", 1, _MAX_SIZE)
    # Within its window, sliding attention is full attention.
    window = 0 if local_layers else meta.integer("attention.sliding_window", 0, _MAX_SIZE, 0)
    return min(context, window) if window else context
