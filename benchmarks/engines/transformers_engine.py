"""Hugging Face transformers on PyTorch: the standard Python stack, with the weights dequantised to bf16 or fp32."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache

from engines.task import Setting, Task, thread_counts

_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def model_file(path: Path, variant: str) -> Path:
    """The file as it is."""
    return path


class Transformers:
    """Greedy decoding by the model's own forward, which spares what ``generate`` does around it."""

    def __init__(self, path: Path, variant: str, threads: int) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=_DTYPES[variant], local_files_only=True
        ).eval()
        self._threads = threads
        self._cached: dict[str, DynamicCache] = {}
        self.version = f"{transformers.__version__}, torch {torch.__version__}"

    def settings(self, task: Task) -> list[Setting]:
        return [Setting(threads) for threads in thread_counts(task, self._threads)]

    @torch.inference_mode()
    def seconds(self, task: Task, setting: Setting) -> float:
        torch.set_num_threads(setting.threads)
        ids = torch.tensor(task.prompts())
        if task.tokens == 0:
            start = time.perf_counter()
            self._forward(ids, DynamicCache())
            return time.perf_counter() - start
        cache = self._cached.get(task.name)
        if cache is None:
            cache = self._cached[task.name] = DynamicCache()
            self._forward(ids, cache)
        decoded = cache.get_seq_length() - task.prompt
        if decoded:
            cache.crop(-decoded)
        token = ids[:, :1]
        start = time.perf_counter()
        for _ in range(task.tokens):
            token = self._forward(token, cache).argmax(-1)
        return time.perf_counter() - start

    def _forward(self, ids: torch.Tensor, cache: DynamicCache) -> Any:
        return self._model(ids, cache=cache, use_cache=True, logits_to_keep=1).logits


def load(path: Path, variant: str, threads: int) -> Transformers:
    return Transformers(path, variant, threads)
