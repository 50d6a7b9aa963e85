"""The shape of a model from the ``config.json`` that lies beside its weights on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ultrafast.errors import ConfigError
from ultrafast.wafer.shape import Experts, Latent, Shape

_MAX_BYTES = 4 << 20
_DEFAULT_CONTEXT = 4096  # where a file says nothing about it


class _Text(msgspec.Struct):
    """The fields that matter here, under the names that model families give them."""

    hidden_size: int | None = None
    num_hidden_layers: int | None = None
    num_attention_heads: int | None = None
    vocab_size: int | None = None
    intermediate_size: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int | None = None
    tie_word_embeddings: bool | None = None
    sliding_window: int | None = None
    layer_types: list[str] | None = None
    # Mixtures of experts: Mixtral, gpt-oss; Qwen; DeepSeek, GLM, Kimi; Llama 4.
    num_local_experts: int | None = None
    num_experts: int | None = None
    n_routed_experts: int | None = None
    num_experts_per_tok: int | None = None
    n_shared_experts: int | None = None
    moe_intermediate_size: int | None = None
    first_k_dense_replace: int | None = None
    interleave_moe_layer_step: int | None = None
    intermediate_size_mlp: int | None = None
    # Latent attention.
    kv_lora_rank: int | None = None
    q_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    qk_nope_head_dim: int | None = None
    v_head_dim: int | None = None


class _Config(_Text):
    text_config: _Text | None = None  # of models that also see
    model_type: str = ""


def read_config(path: Path) -> Shape:
    """Read a shape.

    Raises:
        ConfigError: the file is no such description; the message names the field.
    """
    try:
        data = path.read_bytes() if path.stat().st_size <= _MAX_BYTES else b""
        outer = msgspec.json.decode(data, type=_Config)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # msgspec's own and UnicodeDecodeError are ValueErrors
        raise ConfigError(f"{path} is not the config.json of a model: {error}") from None
    text = outer.text_config or outer
    name = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    try:
        return _shape(text, name, str(path))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _shape(text: _Text, name: str, source: str) -> Shape:
    layers, hidden = _needed(text, "num_hidden_layers"), _needed(text, "hidden_size")
    heads = _needed(text, "num_attention_heads")
    experts = _experts(text)
    dense = text.intermediate_size_mlp if text.intermediate_size_mlp is not None else text.intermediate_size
    if dense is None and experts is None:
        raise ConfigError("intermediate_size is missing")
    return Shape(
        name=name,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=dense or 0,
        num_heads=heads,
        num_kv_heads=text.num_key_value_heads if text.num_key_value_heads is not None else heads,
        head_dim=text.head_dim if text.head_dim is not None else hidden // max(heads, 1),
        vocab_size=_needed(text, "vocab_size"),
        max_context=text.max_position_embeddings or _DEFAULT_CONTEXT,
        tied_embeddings=bool(text.tie_word_embeddings),
        windows=_windows(text, layers),
        experts=experts,
        latent=_latent(text),
        source=source,
    )


def _experts(text: _Text) -> Experts | None:
    count = next((n for n in (text.n_routed_experts, text.num_local_experts, text.num_experts) if n), None)
    if count is None:
        return None
    size = text.moe_intermediate_size or text.intermediate_size
    if size is None:
        raise ConfigError("moe_intermediate_size is missing")
    has_shared = text.intermediate_size_mlp is not None  # Llama 4 has one, and no field for it
    return Experts(
        count,
        _needed(text, "num_experts_per_tok"),
        size,
        shared=text.n_shared_experts or int(has_shared),
        dense_layers=text.first_k_dense_replace or 0,
        every=max(1, text.interleave_moe_layer_step or 1),
    )


def _latent(text: _Text) -> Latent | None:
    if not text.kv_lora_rank:
        return None
    names = ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    rope, nope, value = (_needed(text, name) for name in names)
    return Latent(text.q_lora_rank, text.kv_lora_rank, rope, nope, value)


def _windows(text: _Text, layers: int) -> tuple[int, ...]:
    if not text.sliding_window or not text.layer_types:
        return ()
    if len(text.layer_types) != layers:
        raise ConfigError(f"layer_types has {len(text.layer_types)} entries for {layers} layers")
    return tuple(text.sliding_window if kind == "sliding_attention" else 0 for kind in text.layer_types)


def _needed(text: _Text, field: str) -> int:
    value: int | None = getattr(text, field)
    if value is None:
        raise ConfigError(f"{field} is missing")
    return value
