"""Measure llama.cpp on the golden data: the figures that stand beside ours in docs/accuracy.md.

llama.cpp runs the same file with its default settings and two threads; its logits of the 1,500-token text are compared
with transformers' fp32 logits over the whole vocabulary, its most likely token at each golden greedy step with the
golden one, and its tokenisation of every golden prompt with the golden ids. It lives in a virtual environment of its
own, built for this machine (long):

    python3 -m venv llama-venv
    llama-venv/bin/pip install --no-binary llama-cpp-python llama-cpp-python==0.3.36 platformdirs huggingface-hub
    llama-venv/bin/python tools/compare_llama_cpp.py --full-logits full.npy

full.npy comes from tools/make_golden.py --full-logits. Writes docs/data/llama_cpp_accuracy*.json.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from accuracy_metrics import measure, table
from golden_files import MODEL, PLANS, ROOT, load_golden, resolve_model

RESULTS = {
    "smollm2-135m": ROOT / "docs" / "data" / "llama_cpp_accuracy.json",
    "gemma3-270m": ROOT / "docs" / "data" / "llama_cpp_accuracy_gemma3.json",
}
THREADS = 2
CONTEXT = 2048  # the long text and its greedy tokens fit


class LlamaCpp:
    """A loaded model; everything not named here is llama-cpp-python's default."""

    def __init__(self, path: Path) -> None:
        self.llama = llama_cpp.Llama(
            str(path), n_ctx=CONTEXT, n_threads=THREADS, n_threads_batch=THREADS, logits_all=True, verbose=False
        )

    def logits(self, ids: list[int]) -> npt.NDArray[np.float32]:
        """Next-token logits after each token, [n, vocab]."""
        self.llama.reset()
        self.llama.eval(ids)
        return np.array(self.llama.scores[: len(ids)], dtype=np.float32)

    def tokenize(self, text: str, add_bos: bool) -> list[int]:
        """Token ids, special tokens parsed."""
        return list(self.llama.tokenize(text.encode(), add_bos=add_bos, special=True))


def compare(model: str, full_logits: Path) -> dict[str, Any]:
    """All figures, with what they depend on."""
    plan = PLANS[model]
    golden = load_golden(plan.folder)
    llama = LlamaCpp(resolve_model(model))
    differing = [
        prompt["name"]
        for prompt in golden["prompts"]
        if llama.tokenize(prompt["prompt_text"], not plan.chat)[: len(prompt["prompt_ids"])] != prompt["prompt_ids"]
    ]
    print("tokenisation done; logits…", file=sys.stderr)
    references = {"transformers": np.load(full_logits)}
    return {
        "llama_cpp_python": llama_cpp.__version__,
        "system": ctypes.string_at(llama_cpp.llama_print_system_info()).decode(),
        "threads": THREADS,
        "reference": golden["reference"],
        "prompts_tokenized_differently": differing,
        "figures": measure("llama.cpp", llama.logits, references, golden["prompts"]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=PLANS, default=MODEL, help="in the cache (default: %(default)s)")
    parser.add_argument("--full-logits", type=Path, metavar="NPY", required=True, help="transformers' fp32 logits")
    arguments = parser.parse_args()
    try:
        result = compare(arguments.model, arguments.full_logits)
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        return 130
    RESULTS[arguments.model].write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table([result["figures"]], "transformers"))
    print(f"prompts tokenised differently: {result['prompts_tokenized_differently'] or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
