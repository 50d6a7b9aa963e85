"""What is known of models and devices, and models in files."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ultrafast.errors import ConfigError
from ultrafast.wafer import catalog
from ultrafast.wafer.precision import Precision
from ultrafast.wafer.shape import Shape

LLAMA: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def written(folder: Path, config: Any) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize(
    ("name", "total", "active"),  # billions, as the makers state them
    [
        ("llama-3.1-8b", 8.03, 8.03),
        ("llama-3.1-70b", 70.6, 70.6),
        ("llama-3.1-405b", 405.9, 405.9),
        ("llama-4-maverick", 400, 17),
        ("llama-4-scout", 109, 17),
        ("mixtral-8x7b", 46.7, 12.9),
        ("qwen3-32b", 32.8, 32.8),
        ("qwen3-235b", 235, 22),
        ("qwen3-coder-480b", 480, 35),
        ("gpt-oss-20b", 20.9, 3.6),
        ("gpt-oss-120b", 116.8, 5.1),
        ("deepseek-v3", 671, 37),
        ("kimi-k2", 1040, 32),
        ("glm-4.7", 355, 32),
        ("smollm2-360m", 0.362, 0.362),
    ],
)
def test_known_models_have_the_parameters_that_their_makers_state(name: str, total: float, active: float) -> None:
    shape = catalog.model(name)
    embedding = 0 if shape.tied_embeddings else shape.embedding.parameters
    assert shape.num_parameters / 1e9 == pytest.approx(total, rel=0.02)
    # Some makers count the embedding as active, though a token reads one row of it.
    assert active * 0.95 <= (shape.num_active_parameters + embedding) / 1e9
    assert shape.num_active_parameters / 1e9 <= active * 1.07


def test_every_figure_has_a_source() -> None:
    assert {"wse-2", "wse-3", "groq-lpu", "sn40l", "a100", "h100", "h200", "b200", "mi300x", "epyc-9684x"} <= {
        *catalog.devices()
    }
    for device in catalog.devices().values():
        for name, figure in device.figures.items():
            assert figure.value > 0, (device.name, name)
            assert len(figure.source) > 10, (device.name, name)
    assert all(shape.source for shape in catalog.models().values())


def test_names_are_found_however_they_are_written() -> None:
    assert catalog.device("CS-3") is catalog.device("wse_3") is catalog.devices()["wse-3"]
    assert catalog.model("DeepSeek-R1") is catalog.model("deepseek-v3")
    with pytest.raises(ConfigError, match=r"no device 'wse-9'.*did you mean wse-\d"):
        catalog.device("wse-9")
    with pytest.raises(ConfigError, match=r"no model 'lama-3.1-8b'.*llama-3.1-8b"):
        catalog.model("lama-3.1-8b")
    with pytest.raises(ConfigError, match="power_of_love is not known"):
        catalog.device("a100")["power_of_love"]


def test_a_figure_that_is_not_known_is_none() -> None:
    assert catalog.device("wse-2").get("price_usd") is None


def test_a_gguf_file_and_the_list_agree() -> None:
    from_file, known = catalog.model("smollm2-135m"), catalog.models()["smollm2-135m"]
    for field in ("num_layers", "hidden_size", "num_parameters", "num_active_parameters", "kv_width", "windows"):
        assert getattr(from_file, field) == getattr(known, field), field


def test_a_config_is_read(tmp_path: Path) -> None:
    shape, known = catalog.model(written(tmp_path, LLAMA)), catalog.model("llama-3.1-8b")
    assert (shape.num_parameters, shape.kv_width) == (known.num_parameters, known.kv_width)
    assert catalog.model(str(tmp_path / "config.json")) == shape


def test_a_config_with_experts_and_latent_attention_is_read(tmp_path: Path) -> None:
    known = catalog.model("deepseek-v3")
    assert known.experts
    assert known.latent
    config = LLAMA | {
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "vocab_size": 129280,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
    }
    shape = catalog.model(written(tmp_path, {"text_config": config}))
    assert shape.num_parameters == known.num_parameters
    assert shape.num_active_parameters == known.num_active_parameters
    assert shape.kv_width == 576


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": 0}, "num_layers is 0"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers"),
        ({"num_key_value_heads": 5}, "5 KV heads do not divide the 32 heads"),
        ({"num_key_value_heads": 0}, "num_kv_heads is 0"),
        ({"intermediate_size": -1}, "intermediate_size is -1"),
        ({"num_local_experts": 4, "num_experts_per_tok": 9}, "9 of 4 experts"),
        ({"num_local_experts": 4}, "num_experts_per_tok is missing"),
        ({"sliding_window": 8, "layer_types": ["full_attention"]}, "1 entries for 32 layers"),
    ],
)
def test_a_config_that_is_wrong_says_where(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        catalog.model(written(tmp_path, LLAMA | change))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([*LLAMA, "num_local_experts", "kv_lora_rank", "text_config"]), json_values))
def test_any_config_is_a_shape_or_an_error(tmp_path_factory: pytest.TempPathFactory, change: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("config")
    with contextlib.suppress(ConfigError):
        assert isinstance(catalog.model(written(folder, LLAMA | change)), Shape)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_shape_or_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_bytes(data)
    with pytest.raises(ConfigError):
        catalog.model(str(path))


def test_precision() -> None:
    shape = catalog.model("gpt-oss-120b")
    plain, mixed = Precision.parse("bf16"), Precision.parse("fp4,attention=bf16,kv=fp8")
    assert plain.weight_bytes(shape) == 2 * shape.num_parameters
    assert (mixed.bits("expert"), mixed.bits("attention"), mixed.kv) == (4.25, 16.0, 8.0)
    assert mixed.weight_bytes(shape) < plain.weight_bytes(shape) / 3
    # 18 layers attend to everything, 18 to the last 128 positions.
    assert plain.kv_bytes(shape, 4096) == 18 * (4096 + 128) * 2 * 8 * 64 * 2
    for wrong in ("fp9", "bf16,heads=fp8", "bf16,kv=", ""):
        with pytest.raises(ConfigError, match="precision"):
            Precision.parse(wrong)
