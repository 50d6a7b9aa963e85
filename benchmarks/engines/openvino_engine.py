"""OpenVINO GenAI, which reads the GGUF file itself."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import openvino
import openvino_genai

from engines.task import Setting, Task, thread_counts


def model_file(path: Path, variant: str) -> Path:
    """The file as it is."""
    return path


class OpenVino:
    """A pipeline for each setting: threads are fixed when a model is compiled."""

    def __init__(self, path: Path, threads: int) -> None:
        self._path = path
        self._threads = threads
        self._pipelines: dict[Setting, openvino_genai.LLMPipeline] = {}
        self._pipeline(Setting(threads))
        self.version = version("openvino-genai")

    def settings(self, task: Task) -> list[Setting]:
        return [
            Setting(threads, options)
            for threads in thread_counts(task, self._threads)
            for options in ((), ("attention backend SDPA",))
        ]

    def seconds(self, task: Task, setting: Setting) -> float:
        """By the pipeline's own clock: the time to the first token, and what came after it."""
        pipeline = self._pipeline(setting)
        ids = np.array(task.prompts(), dtype=np.int64)
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = task.tokens + 1
        config.ignore_eos = True
        config.do_sample = False
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        start = time.perf_counter()
        metrics = pipeline.generate(inputs, config).perf_metrics
        elapsed = time.perf_counter() - start
        first = metrics.get_ttft().mean / 1e3
        return elapsed - first if task.tokens else first

    def _pipeline(self, setting: Setting) -> openvino_genai.LLMPipeline:
        if setting not in self._pipelines:
            options = {"INFERENCE_NUM_THREADS": setting.threads, "PERFORMANCE_HINT": "LATENCY"}
            if setting.options:
                options["ATTENTION_BACKEND"] = "SDPA"
            self._pipelines[setting] = openvino_genai.LLMPipeline(str(self._path), "CPU", **options)
        return self._pipelines[setting]


def load(path: Path, variant: str, threads: int) -> OpenVino:
    return OpenVino(path, threads)
