"""llama.cpp, through its C interface: no Python between two tokens but one call."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llama_cpp

from engines.task import Setting, Task, thread_counts

_BATCH = 2048
_FORMATS = {"Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, "IQ4_NL": llama_cpp.LLAMA_FTYPE_MOSTLY_IQ4_NL}
_FLASH = {"flash attention": llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED, "": llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED}
_SEPARATE = "KV cache by sequence"


def model_file(path: Path, variant: str) -> Path:
    """The file, or all its matrices requantised by llama.cpp itself into the format that it repacks at load."""
    if variant == "as it is":
        return path
    target = Path("build/peers") / f"{path.stem}.{variant}.gguf"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = _FORMATS[variant]
        params.allow_requantize = True
        params.pure = True  # the embedding too, which would otherwise stay in eight bits
        partial = target.with_suffix(".partial")
        if llama_cpp.llama_model_quantize(str(path).encode(), str(partial).encode(), params) != 0:
            raise RuntimeError(f"llama.cpp could not requantise {path} to {variant}")
        partial.rename(target)
    return target


class LlamaCpp:
    """The model, and a context for each setting that needs one of its own."""

    def __init__(self, path: Path, threads: int) -> None:
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp could not load {path}")
        self._threads = threads
        self._contexts: dict[tuple[str, ...], _Context] = {}
        self.version = f"llama-cpp-python {version('llama-cpp-python')}"

    def settings(self, task: Task) -> list[Setting]:
        separate = ["", _SEPARATE] if task.sequences > 1 else [""]
        return [
            Setting(threads, tuple(filter(None, (flash, kv))))
            for threads in thread_counts(task, self._threads)
            for flash in _FLASH
            for kv in separate
        ]

    def seconds(self, task: Task, setting: Setting) -> float:
        key = (*setting.options, f"{task.sequences} sequences")
        if key not in self._contexts:
            self._contexts[key] = _Context(self._model, task.sequences, setting.options)
        context = self._contexts[key]
        context.set_threads(setting.threads)
        return context.seconds(task)


class _Context:
    """One llama context; it keeps the prompt that it computed last, because only what follows is timed."""

    def __init__(self, model: Any, sequences: int, options: tuple[str, ...]) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = 4096
        params.n_batch = _BATCH
        params.n_seq_max = sequences
        params.kv_unified = _SEPARATE not in options
        params.flash_attn_type = next(value for name, value in _FLASH.items() if not name or name in options)
        self._context = llama_cpp.llama_init_from_model(model, params)
        if not self._context:
            raise RuntimeError(f"llama.cpp refused a context with {options}")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._greedy = llama_cpp.llama_sampler_init_greedy()
        self._batch = llama_cpp.llama_batch_init(_BATCH, 0, 1)
        self._cached: list[list[int]] = []

    def set_threads(self, threads: int) -> None:
        llama_cpp.llama_set_n_threads(self._context, threads, threads)

    def seconds(self, task: Task) -> float:
        prompts = task.prompts()
        if task.tokens == 0:
            llama_cpp.llama_memory_clear(self._memory, True)
            self._cached = []
            self._fill([(token, position, 0) for position, token in enumerate(prompts[0])])
            start = time.perf_counter()
            self._decode()
            llama_cpp.llama_synchronize(self._context)
            return time.perf_counter() - start
        if self._cached != prompts:
            llama_cpp.llama_memory_clear(self._memory, True)
            for sequence, prompt in enumerate(prompts):
                self._fill([(token, position, sequence) for position, token in enumerate(prompt)])
                self._decode()
            self._cached = prompts
        for sequence in range(task.sequences):
            llama_cpp.llama_memory_seq_rm(self._memory, sequence, task.prompt, -1)
        tokens = [prompt[0] for prompt in prompts]
        start = time.perf_counter()
        for step in range(task.tokens):
            self._fill([(token, task.prompt + step, s) for s, token in enumerate(tokens)], all_logits=True)
            self._decode()
            tokens = [llama_cpp.llama_sampler_sample(self._greedy, self._context, s) for s in range(task.sequences)]
        return time.perf_counter() - start

    def _fill(self, entries: list[tuple[int, int, int]], *, all_logits: bool = False) -> None:
        batch = self._batch
        batch.n_tokens = len(entries)
        for i, (token, position, sequence) in enumerate(entries):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = all_logits or i == len(entries) - 1

    def _decode(self) -> None:
        code = llama_cpp.llama_decode(self._context, self._batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")


def load(path: Path, variant: str, threads: int) -> LlamaCpp:
    return LlamaCpp(path, threads)
