"""Make the golden data in tests/golden/ with Hugging Face transformers, in fp32, from the same GGUF file.

An independent implementation says what the right answers are: transformers dequantises the file and computes in
fp32. It needs PyTorch, so it lives in a virtual environment of its own, never in the project's:

    python3 -m venv golden-venv
    golden-venv/bin/pip install torch==2.13.0 transformers==5.24.0 gguf==0.19.0 numpy==2.4.6 accelerate==1.15.0 \\
        platformdirs huggingface-hub
    golden-venv/bin/python tools/make_golden.py

Example, with the full logits kept for tools/compare_llama_cpp.py (295 MB):

    golden-venv/bin/python tools/make_golden.py --full-logits full.npy
    golden-venv/bin/python tools/make_golden.py gemma3-270m

The same versions on the same machine write the same bytes again; nothing is written unless everything succeeded.
tools/golden_files.py describes the files.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # everything comes from the one local file

import gguf
import numpy as np
import torch
from tokenizers import pre_tokenizers
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from golden_files import MODEL, PLANS, Plan, load_prompts, npz, resolve_model

GREEDY_TOP = 10
LONG_TOP = 8
FIXED_IDS = (
    0,
    2,
    17,
    198,
    216,
    1000,
    10000,
    49151,
)  # of SmolLM2: both end marks, "!", a line break, a space, three ordinary tokens
THREADS = 2  # fixed, because the order of PyTorch's sums depends on it

GGUF_TO_HF = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA_TO_HF = GGUF_TO_HF | {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def load_model(path: Path) -> PreTrainedModel:
    """The model in fp32 with plain ("eager") attention, its weights checked against the file."""
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    check_weights(gguf.GGUFReader(path), model)
    return model


def check_weights(reader: gguf.GGUFReader, model: PreTrainedModel) -> None:
    """Every weight must equal the `gguf` package's dequantisation bit for bit, and every parameter come from the file.

    Llama's files store the query and key rows of each head with RoPE's two halves interleaved; transformers keeps them
    apart. Gemma's files store norm weights plus 1.
    """
    gemma = model.config.model_type == "gemma3_text"
    names = GEMMA_TO_HF if gemma else GGUF_TO_HF
    parameters = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    for tensor in reader.tensors:
        *block, kind, suffix = tensor.name.split(".")
        layer = f"model.layers.{block[1]}." if block else ""
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if kind.endswith("norm") and gemma:
            expected = expected - 1
        if kind in heads and not gemma:
            rows, columns = expected.shape
            halves = expected.reshape(heads[kind], rows // heads[kind] // 2, 2, columns)
            expected = halves.swapaxes(1, 2).reshape(rows, columns)
        actual = parameters.pop(f"{layer}{names[kind]}.{suffix}")
        if actual.dtype != np.float32 or not np.array_equal(actual, expected):
            raise SystemExit(f"{tensor.name}: transformers' weights differ from the file's dequantised ones")
    if parameters:
        raise SystemExit(f"not in the file: {', '.join(parameters)}")


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """transformers' tokenizer of the file, with the pre-tokenizer that SmolLM2's own tokenizer.json defines.

    transformers gives every `gpt2` vocabulary in a GGUF file the generic byte-level pre-tokenizer; `smollm` also
    splits digits off one by one, which matters where white space stands before a digit. SentencePiece vocabularies
    need no such help.
    """
    metadata = gguf.GGUFReader(path).fields
    if metadata["tokenizer.ggml.model"].contents() == "llama":
        return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    name = metadata["tokenizer.ggml.pre"].contents()
    if name != "smollm":
        raise SystemExit(f"{path}: pre-tokenizer {name!r} is not known to this tool, only 'smollm'")
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    if tokenizer.chat_template != metadata["tokenizer.chat_template"].contents():
        raise SystemExit(f"{path}: transformers did not take the file's chat template")
    if tokenizer.convert_ids_to_tokens(range(len(tokenizer))) != metadata["tokenizer.ggml.tokens"].contents():
        raise SystemExit(f"{path}: transformers' vocabulary differs from the file's")
    return tokenizer


def prompt_text(tokenizer: PreTrainedTokenizerBase, prompt: dict[str, Any]) -> str:
    """What the model reads: the rendered chat, generation prompt included, or the raw text."""
    if "text" in prompt:
        return str(prompt["text"])
    return str(tokenizer.apply_chat_template(prompt["messages"], tokenize=False, add_generation_prompt=True))


def greedy(model: PreTrainedModel, prompt_ids: list[int], max_steps: int) -> tuple[list[int], dict[str, np.ndarray]]:
    """Up to ``max_steps`` most likely tokens, the end mark included, with the top logits at each step."""
    ids, tops, normalizers = [], [], []
    inputs, cache = torch.tensor([prompt_ids]), None
    while len(ids) < max_steps and (not ids or ids[-1] != model.config.eos_token_id):
        output = model(inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, logits = output.past_key_values, output.logits[0, -1]
        tops.append(logits.topk(GREEDY_TOP))
        normalizers.append(logits.double().logsumexp(-1).item())
        ids.append(int(tops[-1].indices[0]))
        inputs = torch.tensor([ids[-1:]])
    return ids, {
        "top_ids": np.stack([top.indices.numpy().astype(np.int32) for top in tops]),
        "top_logits": np.stack([top.values.numpy() for top in tops]),
        "logsumexp": np.array(normalizers),
    }


def select(logits: torch.Tensor) -> dict[str, np.ndarray]:
    """The part of the long text's logits [n, vocab] that is kept."""
    top = logits.topk(LONG_TOP)
    return {
        "top_ids": top.indices.numpy().astype(np.int32),
        "top_logits": top.values.numpy(),
        "fixed_ids": np.array(FIXED_IDS, dtype=np.int32),
        "fixed_logits": logits[:, list(FIXED_IDS)].numpy(),
        "logsumexp": torch.stack([row.double().logsumexp(-1) for row in logits]).numpy(),
    }


def describe(path: Path, plan: Plan) -> dict[str, Any]:
    """What the golden data depends on."""
    packages = ("torch", "transformers", "tokenizers", "gguf", "numpy")
    return {
        "model": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "arithmetic": "float32, eager attention",
        "tokenizer": "transformers' conversion of the file"
        + (", pre-tokenizer Digits(individual) then ByteLevel (smollm)" if plan.chat else ", BOS first"),
        "threads": THREADS,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "versions": {package: importlib.metadata.version(package) for package in packages},
    }


def golden_json(reference: dict[str, Any], records: list[dict[str, Any]]) -> bytes:
    """JSON with one prompt a line: small, and a change shows which prompt it is in."""
    lines = ",\n".join(json.dumps(record) for record in records)
    return f'{{"reference": {json.dumps(reference, indent=1)},\n"prompts": [\n{lines}\n]}}\n'.encode()


@torch.inference_mode()
def make(path: Path, plan: Plan, full_logits: Path | None) -> dict[str, bytes]:
    """Run every prompt; returns the contents of the files by name."""
    print("loading the model and checking its weights against the file…", file=sys.stderr)
    model, tokenizer = load_model(path), load_tokenizer(path)
    records, steps = [], {}
    for prompt in tqdm(load_prompts(plan.chat), desc="greedy", unit="prompt"):
        text = prompt_text(tokenizer, prompt)
        prompt_ids = tokenizer.encode(text, add_special_tokens=False)
        if not plan.chat:
            prompt_ids = [tokenizer.bos_token_id, *prompt_ids]
        if prompt["name"] == "long_text":
            prompt_ids = prompt_ids[: plan.long_tokens]
        greedy_ids, arrays = greedy(model, prompt_ids, plan.greedy_steps)
        margins = arrays["top_logits"][:, 0] - arrays["top_logits"][:, 1]
        record = {"name": prompt["name"], "prompt_text": text, "prompt_ids": prompt_ids, "greedy_ids": greedy_ids}
        if "messages" in prompt:
            record["messages"] = prompt["messages"]
        record["margins"] = [round(float(margin), 6) for margin in margins]
        record["ended"] = greedy_ids[-1] == model.config.eos_token_id
        records.append(record)
        steps.update({f"{prompt['name']}.{key}": array for key, array in arrays.items()})
    print("logits of the long text…", file=sys.stderr)
    long_ids = next(record["prompt_ids"] for record in records if record["name"] == "long_text")
    logits = model(torch.tensor([long_ids]), use_cache=False).logits[0]
    if full_logits is not None:
        np.save(full_logits, logits.numpy())
    return {
        "golden.json": golden_json(describe(path, plan), records),
        "greedy.npz": npz(steps),
        "long_text.npz": npz(select(logits)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", choices=PLANS, default=MODEL, help="in the cache (default: %(default)s)")
    parser.add_argument("--full-logits", type=Path, metavar="NPY", help="also save the long text's logits [n, vocab]")
    arguments = parser.parse_args()
    plan: Plan = PLANS[arguments.model]
    logging.set_verbosity_error()
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    try:
        files = make(resolve_model(arguments.model), plan, arguments.full_logits)
    except KeyboardInterrupt:
        print("interrupted: no golden file was changed", file=sys.stderr)
        return 130
    plan.folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (plan.folder / name).write_bytes(content)
        print(f"{plan.folder / name}: {len(content):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
