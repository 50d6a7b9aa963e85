"""The shape read from a file: right on good files, and a precise refusal of everything else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf as reference
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from support.tiny import MATRIX_TYPES, VECTOR_TYPES, write_tiny_model
from ultrafast.errors import ModelFileError
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import ModelShape


def shape_of(path: Path) -> ModelShape:
    with GgufFile(path) as file:
        return ModelShape.from_gguf(file)


def test_sizes(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", head_dim=32, rope_dim=16, ffn=96, layers=3, context=99)
    shape = shape_of(path)
    assert shape == ModelShape(
        architecture="llama",
        name="Tiny",
        num_layers=3,
        hidden_size=64,
        intermediate_size=96,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        rope_dim=16,
        vocab_size=288,
        max_context=99,
        rms_norm_eps=float(np.float32(1e-5)),
        query_scale=32**-0.5,
        embedding_scale=1.0,
        windows=(0, 0, 0),
        rope_inv_freq=tuple(10_000.0 ** (-2 * i / 16) for i in range(8)),
        local_rope_inv_freq=(),
        rope_halves=False,
        qk_norm=False,
        post_norms=False,
        gelu=False,
        qkv_bias=False,
        tied_embeddings=True,
    )


def test_sizes_of_the_embedded_model(embedded_model_path: Path) -> None:
    shape = shape_of(embedded_model_path)
    assert (shape.num_layers, shape.hidden_size, shape.intermediate_size, shape.head_dim) == (30, 576, 1536, 64)
    assert (shape.num_heads, shape.num_kv_heads, shape.vocab_size, shape.max_context) == (9, 3, 49152, 8192)
    assert shape.tied_embeddings
    assert shape.num_parameters == 134_515_008


TENSORS: list[dict[str, Any]] = [
    {},
    {"tied": False},
    {"qkv_bias": True},
    {"layers": 5, "kv_heads": 4},
    {"architecture": "qwen2"},
    {"architecture": "qwen3", "head_dim": 24},
    {"architecture": "gemma3"},
]


@pytest.mark.parametrize("options", TENSORS)
def test_tensor_names_are_the_tensors_of_the_file(tmp_path: Path, options: dict[str, Any]) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", **options)
    shape = shape_of(path)
    tensors = {tensor.name: tensor for tensor in reference.GGUFReader(path).tensors}
    named = {name: (rows, columns) for name, rows, columns in shape.tensor_names()}
    assert named.keys() == tensors.keys()
    for name, (rows, columns) in named.items():
        assert rows * columns == tensors[name].n_elements
        assert columns == tensors[name].shape[0]
    assert shape.num_parameters == sum(tensor.n_elements for tensor in tensors.values())
    assert shape.tied_embeddings == options.get("tied", True)
    assert shape.qkv_bias == (options.get("qkv_bias", False) or options.get("architecture") == "qwen2")


@pytest.mark.parametrize("type", MATRIX_TYPES, ids=str)
def test_supported_types(tmp_path: Path, type: Type) -> None:
    vectors = type if type in VECTOR_TYPES else Type.F32
    path = tmp_path / "tiny.gguf"
    types = {"norm": vectors, ".bias": vectors}
    write_tiny_model(path, type=type, types=types, tied=False, qkv_bias=True, hidden=256, ffn=512, layers=1)
    assert shape_of(path)


def test_rope_base_and_linear_scaling(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", rope_base=500_000.0, rope_linear=4.0)
    assert shape_of(path).rope_inv_freq == tuple(500_000.0 ** (-2 * i / 16) / 4.0 for i in range(8))


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}, 1.0),
        ({"llama.rope.scaling.factor": 4.0}, 4.0),
        ({"llama.rope.scale_linear": 2.0}, 2.0),
        ({"llama.rope.scaling.type": "linear"}, 1.0),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}, 1.0),
    ],
)
def test_rope_scaling_settings(tmp_path: Path, settings: dict[str, Any], factor: float) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", edit=lambda meta, _: meta.update(settings))
    assert shape_of(path).rope_inv_freq[0] == 1.0 / factor


@pytest.mark.parametrize("type", VECTOR_TYPES)
def test_rope_factors_divide_the_frequencies(tmp_path: Path, type: Type) -> None:
    """As Llama 3 files have them: 1 for the high frequencies, growing to 32 (here) for the low ones."""
    factors = [1.0, 1.0, 1.0, 1.5, 4.0, 16.0, 32.0, 32.0]
    path = write_tiny_model(tmp_path / "tiny.gguf", rope_factors=factors, types={"rope_freqs": type})
    expected = [10_000.0 ** (-2 * i / 16) / factor for i, factor in enumerate(factors)]
    assert shape_of(path).rope_inv_freq == pytest.approx(expected, rel=1e-12)


def test_defaults(tmp_path: Path) -> None:
    """Absent: KV heads as many as heads, frequency base 10,000, all of a head rotated, the file's name."""

    def edit(meta: dict[str, Any], _: Any) -> None:
        for key in ("attention.head_count_kv", "rope.freq_base", "rope.dimension_count", "vocab_size"):
            del meta[f"llama.{key}"]
        del meta["general.name"]

    shape = shape_of(write_tiny_model(tmp_path / "my-model.gguf", kv_heads=4, tokenizer="none", edit=edit))
    assert (shape.num_kv_heads, shape.rope_dim, shape.name) == (4, 16, "my-model")
    assert shape.rope_inv_freq[1] == pytest.approx(10_000.0 ** (-1 / 8))


def test_a_sliding_window_limits_the_context(tmp_path: Path) -> None:
    for window, expected in ((100, 100), (1000, 512), (0, 512)):
        edit = {"llama.attention.sliding_window": window}
        path = write_tiny_model(tmp_path / "tiny.gguf", edit=lambda meta, _, edit=edit: meta.update(edit))
        assert shape_of(path).max_context == expected


def gemma(path: Path, layers: int = 4, **settings: Any) -> ModelShape:
    keys = {f"gemma3.{key}": value for key, value in settings.items()}
    return shape_of(
        write_tiny_model(path, architecture="gemma3", layers=layers, edit=lambda meta, _: meta.update(keys))
    )


def test_what_gemma_adds(tmp_path: Path) -> None:
    shape = gemma(tmp_path / "tiny.gguf", layers=7, **{"attention.sliding_window": 40})
    assert shape.windows == (40, 40, 40, 40, 40, 0, 40)
    assert shape.max_context == 512
    assert (shape.embedding_scale, shape.query_scale) == (8.0, 0.25)
    assert shape.gelu
    assert shape.qk_norm
    assert shape.post_norms
    assert shape.rope_halves


@pytest.mark.parametrize(
    ("pattern", "windows"),
    [
        (1, (0, 0, 0, 0)),
        (2, (9, 0, 9, 0)),
        (100, (9, 9, 9, 9)),
        ([True, False, False, True], (9, 0, 0, 9)),
    ],
)
def test_which_layers_are_local(tmp_path: Path, pattern: Any, windows: tuple[int, ...]) -> None:
    settings = {"attention.sliding_window": 9, "attention.sliding_window_pattern": pattern}
    assert gemma(tmp_path / "tiny.gguf", **settings).windows == windows


@pytest.mark.parametrize("pattern", [0, "all", 2.0, [True], [1, 0, 0, 1]])
def test_a_bad_pattern_of_local_layers(tmp_path: Path, pattern: Any) -> None:
    settings = {"attention.sliding_window": 9, "attention.sliding_window_pattern": pattern}
    with pytest.raises(ModelFileError, match=r"'gemma3\.attention\.sliding_window_pattern'"):
        gemma(tmp_path / "tiny.gguf", **settings)


def test_local_layers_rotate_by_frequencies_of_their_own(tmp_path: Path) -> None:
    scaled = {"rope.freq_base": 1e6, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    shape = gemma(tmp_path / "tiny.gguf", **scaled | {"attention.sliding_window": 9})
    assert shape.rope_inv_freq == tuple(1e6 ** (-2 * i / 16) / 8 for i in range(8))
    assert shape.local_rope_inv_freq == tuple(10_000.0 ** (-2 * i / 16) for i in range(8))
    shape = gemma(tmp_path / "tiny.gguf", **scaled | {"attention.sliding_window": 9, "rope.freq_base_swa": 500.0})
    assert shape.local_rope_inv_freq[1] == 500.0 ** (-1 / 8)
    assert gemma(tmp_path / "tiny.gguf", **scaled).local_rope_inv_freq == ()


def test_the_largest_gemma_scales_by_hidden_size_over_heads(tmp_path: Path) -> None:
    path = write_tiny_model(
        tmp_path / "tiny.gguf",
        architecture="gemma3",
        layers=62,
        hidden=32,
        heads=2,
        kv_heads=1,
        head_dim=8,
        ffn=32,
        type=Type.F32,
    )
    assert shape_of(path).query_scale == 0.25


@pytest.mark.parametrize(
    ("architecture", "tensor", "message"),
    [
        ("qwen2", "blk.1.attn_k.bias", "is missing"),
        ("qwen3", "blk.0.attn_q_norm.weight", "is missing"),
        ("gemma3", "blk.1.post_ffw_norm.weight", "is missing"),
        ("qwen3", "blk.0.attn_k_norm.weight", r"has shape \(3,\); the sizes in the metadata say \(16,\)"),
        ("gemma3", "blk.0.post_attention_norm.weight", r"has shape \(3,\); the sizes in the metadata say \(64,\)"),
    ],
)
def test_tensors_that_an_architecture_needs(tmp_path: Path, architecture: str, tensor: str, message: str) -> None:
    def edit(_: Any, tensors: dict[str, Any]) -> None:
        tensors.pop(tensor)
        if "shape" in message:
            tensors[tensor] = np.ones(3, np.float32)

    path = write_tiny_model(tmp_path / "bad.gguf", architecture=architecture, edit=edit)
    with pytest.raises(ModelFileError, match=f"{tensor}' {message}"):
        shape_of(path)


@pytest.mark.parametrize("architecture", ["qwen3", "gemma3"])
def test_biases_that_an_architecture_has_not(tmp_path: Path, architecture: str) -> None:
    bias = {"blk.0.attn_q.bias": np.ones(64, np.float32)}
    path = write_tiny_model(
        tmp_path / "bad.gguf", architecture=architecture, edit=lambda _, tensors: tensors.update(bias)
    )
    with pytest.raises(ModelFileError, match=r"unexpected tensors 'blk\.0\.attn_q\.bias'"):
        shape_of(path)


def test_gemma_with_capped_logits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"'gemma3\.final_logit_softcapping' is 30\.0"):
        gemma(tmp_path / "tiny.gguf", final_logit_softcapping=30.0)


def test_sizes_given_per_layer_must_be_equal(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, edit=lambda meta, _: meta.update({"llama.attention.head_count": [4, 4]}))
    assert shape_of(path).num_heads == 4
    for sizes in ([4, 2], [4], [4, 4, 4], [True, True]):
        write_tiny_model(path, edit=lambda meta, _, sizes=sizes: meta.update({"llama.attention.head_count": sizes}))
        with pytest.raises(ModelFileError, match=r"'llama\.attention\.head_count' is"):
            shape_of(path)


def test_harmless_extra_tensors(tmp_path: Path) -> None:
    extra = {"blk.0.attn_rot_embd.weight": np.ones(8, np.float32)}
    path = write_tiny_model(tmp_path / "tiny.gguf", edit=lambda _, tensors: tensors.update(extra))
    assert shape_of(path).num_layers == 2


def _meta(key: str, value: Any) -> Any:
    """An edit that sets a metadata key, or removes it for None."""
    key = key if key.startswith(("general.", "split.", "tokenizer.")) else f"llama.{key}"
    return lambda meta, _: meta.pop(key) if value is None else meta.update({key: value})


def _tensor(name: str, *shape: int, value: float = 1.0) -> Any:
    """An edit that sets a tensor, or removes it when no shape is given."""
    return lambda _, tensors: tensors.update({name: np.full(shape, value, np.float32)}) if shape else tensors.pop(name)


def _head_dim(size: int) -> Any:
    keys = ("llama.attention.key_length", "llama.attention.value_length", "llama.rope.dimension_count")
    return lambda meta, _: meta.update(dict.fromkeys(keys, size))


REFUSED = {
    "architecture": (_meta("general.architecture", "mamba"), "architecture 'mamba' is not supported; supported: llama"),
    "no layers": (_meta("block_count", 0), "'llama.block_count' is 0; it must be an integer from 1"),
    "too many layers": (_meta("block_count", 2**32 - 1), "'llama.block_count' is 4294967295"),
    "more layers than tensors": (_meta("block_count", 3), "needs at least 27 tensors; the file has 20"),
    "layers as text": (_meta("block_count", "2"), "'llama.block_count' is '2'"),
    "layers as bool": (_meta("block_count", True), "'llama.block_count' is True"),
    "layers as float": (_meta("block_count", 2.0), "'llama.block_count' is 2.0"),
    "no block_count": (_meta("block_count", None), "'llama.block_count' is missing"),
    "no hidden size": (_meta("embedding_length", None), "'llama.embedding_length' is missing"),
    "hidden size": (_meta("embedding_length", 96), "'token_embd.weight' has shape (288, 64)"),
    "ffn": (_meta("feed_forward_length", 64), "'blk.0.ffn_gate.weight' has shape (128, 64)"),
    "heads": (_meta("attention.head_count", 5), "'llama.attention.head_count_kv' is 2, which does not divide"),
    "heads do not divide": (_meta("attention.head_count", 6), "does not divide embedding_length 64"),
    "no heads": (_meta("attention.head_count", 0), "'llama.attention.head_count' is 0"),
    "kv heads": (_meta("attention.head_count_kv", 3), "'llama.attention.head_count_kv' is 3"),
    "more kv heads": (_meta("attention.head_count_kv", 8), "integer from 1 to 4"),
    "other kv heads": (_meta("attention.head_count_kv", 4), "'blk.0.attn_k.weight' has shape (32, 64)"),
    "odd head": (_head_dim(15), "'llama.attention.key_length' is 15; it must be even"),
    "huge head": (_head_dim(2**30), "'blk.0.attn_q.weight' has shape (64, 64)"),
    "value length": (_meta("attention.value_length", 32), "must equal the key length, 16"),
    "rope dimension": (_meta("rope.dimension_count", 18), "'llama.rope.dimension_count' is 18"),
    "odd rope dimension": (_meta("rope.dimension_count", 7), "'llama.rope.dimension_count' is 7; it must be even"),
    "context": (_meta("context_length", 0), "'llama.context_length' is 0"),
    "huge context": (_meta("context_length", 2**31), "'llama.context_length' is 2147483648"),
    "eps 0": (_meta("attention.layer_norm_rms_epsilon", 0.0), "is 0.0; it must be a finite number > 0"),
    "eps nan": (_meta("attention.layer_norm_rms_epsilon", math.nan), "is nan"),
    "no eps": (_meta("attention.layer_norm_rms_epsilon", None), "layer_norm_rms_epsilon' is missing"),
    "base 0": (_meta("rope.freq_base", 0.0), "'llama.rope.freq_base' is 0.0"),
    "base inf": (_meta("rope.freq_base", math.inf), "'llama.rope.freq_base' is inf"),
    "base below 1": (_meta("rope.freq_base", 0.5), "it must be a finite number ≥ 1"),
    "yarn": (_meta("rope.scaling.type", "yarn"), "'llama.rope.scaling.type' is 'yarn'; supported: 'none', 'linear'"),
    "negative factor": (_meta("rope.scaling.factor", -1.0), "'llama.rope.scaling.factor' is -1.0"),
    "attention factor": (_meta("rope.scaling.attn_factor", 2.0), "'llama.rope.scaling.attn_factor' is not 1"),
    "rope factors shape": (_tensor("rope_freqs.weight", 7), "'rope_freqs.weight' has shape (7,); it must be (8,)"),
    "rope factors zero": (_tensor("rope_freqs.weight", 8, value=0.0), "not finite and positive"),
    "rope factors nan": (_tensor("rope_freqs.weight", 8, value=math.nan), "not finite and positive"),
    "rope factors tiny": (_tensor("rope_freqs.weight", 8, value=1e-45), "give frequencies out of range"),
    "experts": (_meta("expert_count", 8), "'llama.expert_count' is 8; only 0 is supported"),
    "soft cap": (_meta("final_logit_softcapping", 30.0), "'llama.final_logit_softcapping' is 30.0"),
    "split": (_meta("split.count", 2), "one part of a model split over several files"),
    "vocabulary": (_meta("vocab_size", 300), "'llama.vocab_size' is 300, but 'token_embd.weight' has 288 rows"),
    "tokens": (_meta("tokenizer.ggml.tokens", ["a", "b"]), "'tokenizer.ggml.tokens' has 2 tokens"),
    "no embedding": (_tensor("token_embd.weight"), "tensor 'token_embd.weight' is missing"),
    "no norm": (_tensor("output_norm.weight"), "tensor 'output_norm.weight' is missing"),
    "no matrix": (_tensor("blk.1.ffn_up.weight"), "tensor 'blk.1.ffn_up.weight' is missing"),
    "norm shape": (_tensor("blk.1.attn_norm.weight", 32), "'blk.1.attn_norm.weight' has shape (32,)"),
    "norm as matrix": (_tensor("output_norm.weight", 64, 32), "'output_norm.weight' has shape (64, 32)"),
    "output shape": (_tensor("output.weight", 287, 64), "'output.weight' has shape (287, 64)"),
    "one bias of three": (_tensor("blk.0.attn_q.bias", 64), "'blk.0.attn_k.bias' is missing"),
    "bias of a later layer": (_tensor("blk.1.attn_q.bias", 64), "unexpected tensors 'blk.1.attn_q.bias'"),
    "output bias": (_tensor("blk.0.attn_output.bias", 64), "unexpected tensors 'blk.0.attn_output.bias'"),
    "q norm": (_tensor("blk.0.attn_q_norm.weight", 16), "unexpected tensors 'blk.0.attn_q_norm.weight'"),
    "expert tensor": (_tensor("blk.0.ffn_up_exps.weight", 2, 128, 64), "unexpected tensors 'blk.0.ffn_up_exps.weight'"),
    "layer beyond": (_tensor("blk.9.ffn_up.weight", 128, 64), "unexpected tensors 'blk.9.ffn_up.weight'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path: Path, case: str) -> None:
    edit, message = REFUSED[case]
    path = write_tiny_model(tmp_path / "bad.gguf", type=Type.F32, edit=edit)
    with pytest.raises(ModelFileError) as caught:
        shape_of(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_unsupported_types_are_named(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "bad.gguf", types={"blk.1.ffn_up": Type.MXFP4})
    with pytest.raises(ModelFileError, match=r"'blk\.1\.ffn_up\.weight' has type MXFP4.*Q4_0, Q4_1, Q5_0.* Q6_K$"):
        shape_of(path)
    path = write_tiny_model(tmp_path / "bad.gguf", types={"output_norm": Type.Q8_0})
    with pytest.raises(ModelFileError, match=r"'output_norm\.weight' has type Q8_0.*supported: F32, F16, BF16"):
        shape_of(path)
    path = write_tiny_model(
        tmp_path / "bad.gguf", head_dim=64, rope_factors=[1.0] * 32, types={"rope_freqs": Type.Q8_0}
    )
    with pytest.raises(ModelFileError, match=r"'rope_freqs\.weight' has type Q8_0"):
        shape_of(path)


def test_many_unexpected_tensors_make_a_short_message(tmp_path: Path) -> None:
    extra = {f"extra.{index}": np.ones(32, np.float32) for index in range(100)}
    path = write_tiny_model(tmp_path / "bad.gguf", edit=lambda _, tensors: tensors.update(extra))
    with pytest.raises(ModelFileError, match="and 95 more"):
        shape_of(path)
