"""Make tests/golden/tiny/: for each architecture a small random model as GGUF, and its logits by transformers in fp32.

The weights are drawn here, given to transformers, and written to the file under the names and in the layout that
llama.cpp's converter uses for the architecture. Runs in the environment of tools/make_golden.py:

    golden-venv/bin/python tools/make_tiny_golden.py

The same versions on the same machine write the same bytes again. tools/golden_files.py describes the files.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import gguf
import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from golden_files import GOLDEN, ROOT, npz

sys.path.insert(0, str(ROOT / "tests"))

from support.vocabulary import bpe_metadata, spm_metadata

SEEDS = {"llama": 5, "qwen2": 11, "qwen3": 14, "gemma3": 108}  # greedy text that varies, with margins above 0.05
NUM_TOKENS = 200
EVERY = 9  # logits of every so many positions are kept
GREEDY_STEPS = 40
SIZES = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 512, "rms_norm_eps": 1e-6}

# Few KV heads, heads that are not hidden / heads wide, windows that are shorter than the text and end amid a KV block.
CONFIGS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES, vocab_size=288, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2),
    "qwen2": Qwen2Config(
        **SIZES,
        vocab_size=288,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    ),
    "qwen3": Qwen3Config(
        **SIZES,
        vocab_size=288,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=24,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    ),
    "gemma3": Gemma3TextConfig(
        **SIZES,
        vocab_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=24,
        query_pre_attn_scalar=24,
        sliding_window=45,
        sliding_window_pattern=3,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    ),
}


def draw(name: str, shape: tuple[int, ...], config: PreTrainedConfig, rng: np.random.Generator) -> np.ndarray:
    """A weight of the size that makes logits vary well; matrices are exact in half precision."""
    noise = rng.standard_normal(shape).astype(np.float32)
    if name.endswith("norm.weight"):
        # Strong layers: a tied embedding would drown others, and repeat the last token for ever.
        mean = 4.0 if config.model_type == "gemma3_text" and "post_" in name else 1.0
        return (mean * (1.0 + 0.2 * noise)).astype(np.float32)
    if name.endswith(".bias"):
        return 0.5 * noise
    gain = 2.0 if "o_proj" in name or "down_proj" in name else 1.5
    if "lm_head" in name or ("embed" in name and not config.tie_word_embeddings):
        gain = 3.0
    return (noise * gain / shape[-1] ** 0.5).astype(np.float16).astype(np.float32)


@torch.no_grad()
def build(config: PreTrainedConfig, seed: int) -> tuple[PreTrainedModel, dict[str, np.ndarray]]:
    """The model, and its weights by transformers' names; norm weights as factors (Gemma's parameters are 1 less)."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    rng = np.random.default_rng(seed)
    weights = {}
    for name, parameter in model.named_parameters():
        weights[name] = draw(name, tuple(parameter.shape), config, rng)
        less = 1.0 if config.model_type == "gemma3_text" and name.endswith("norm.weight") else 0.0
        parameter.copy_(torch.from_numpy(weights[name] - less))
    return model, weights


def interleave_halves(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of Q and K in the order of Llama files: RoPE's pairs as neighbours."""
    halves = weight.reshape(num_heads, 2, -1, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def write(path: Path, architecture: str, config: Any, weights: dict[str, np.ndarray]) -> None:
    """The model as llama.cpp's converter lays it out."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(f"Tiny {architecture}")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    ropes = config.rope_parameters
    rope = ropes.get("full_attention", ropes)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if architecture in ("qwen3", "gemma3"):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if architecture == "gemma3":
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern(3)
    vocabulary = spm_metadata(config.vocab_size) if architecture == "gemma3" else bpe_metadata(config.vocab_size)
    if architecture.startswith("qwen"):
        vocabulary["tokenizer.ggml.pre"] = "qwen2"
    for key, value in vocabulary.items():
        kind = gguf.GGUFValueType.UINT32 if value.__class__ is int else gguf.GGUFValueType.get_type(value)
        writer.add_key_value(key, value, kind)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in weights.items():
        part = name.split(".")[-2]
        if architecture == "llama" and part in heads:
            weight = interleave_halves(weight, heads[part])
        writer.add_tensor(
            names.get_name(name, (".weight", ".bias")), weight.astype(np.float16 if weight.ndim > 1 else np.float32)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@torch.inference_mode()
def answers(model: PreTrainedModel, vocab_size: int) -> dict[str, np.ndarray]:
    """A random text's logits, and the greedy tokens that follow it."""
    ids = np.random.default_rng(1).integers(3, vocab_size, NUM_TOKENS).tolist()
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    greedy, margins = [], []
    for _ in range(GREEDY_STEPS):
        top = model(torch.tensor([ids + greedy]), use_cache=False, logits_to_keep=1).logits[0, -1].topk(2)
        greedy.append(int(top.indices[0]))
        margins.append(float(top.values[0] - top.values[1]))
    return {
        "ids": np.array(ids, np.int32),
        "positions": np.arange(0, NUM_TOKENS, EVERY, dtype=np.int32),
        "logits": logits[::EVERY].numpy(),
        "greedy_ids": np.array(greedy, np.int32),
        "margins": np.array(margins, np.float32),
    }


def main() -> int:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder = GOLDEN / "tiny"
    folder.mkdir(exist_ok=True)
    for architecture, config in CONFIGS.items():
        model, weights = build(config, SEEDS[architecture])
        write(folder / f"{architecture}.gguf", architecture, config, weights)
        (folder / f"{architecture}.npz").write_bytes(npz(answers(model, config.vocab_size)))
        for suffix in (".gguf", ".npz"):
            path = folder / (architecture + suffix)
            print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
