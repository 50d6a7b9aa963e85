"""Run one engine: load the model, then measure what standard input asks for, one JSON line each way.

Started by peers.py, by the interpreter that has the engine:

    python -m engines.serve engines.llama_cpp_engine Q4_0 model.gguf 2
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from engines.task import TASKS, Adapter, Setting, Task


def main() -> None:
    name, variant, model, threads = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the engine prints is not for the pipe

    def reply(**fields: Any) -> None:
        replies.write(json.dumps(fields) + "\n")

    try:
        module = importlib.import_module(name)
        path = module.model_file(Path(model), variant)
        start = time.perf_counter()
        adapter: Adapter = module.load(path, variant, int(threads))
        reply(load_s=time.perf_counter() - start, version=adapter.version)
    except Exception as error:
        traceback.print_exc()
        reply(error=_line(error))
        return
    best: dict[str, Setting] = {}
    for line in sys.stdin:
        task = TASKS[line.strip()]
        try:
            if task.name not in best:
                best[task.name] = tune(adapter, task)
            setting = best[task.name]
            reply(speed=task.speed(adapter.seconds(task, setting)), setting=str(setting))
        except Exception as error:
            traceback.print_exc()
            reply(error=_line(error))


def tune(adapter: Adapter, task: Task) -> Setting:
    """The fastest setting; each is tried twice, because the first run also warms it up."""
    settings = adapter.settings(task)
    if len(settings) == 1:
        return settings[0]
    return min(settings, key=lambda setting: min(adapter.seconds(task, setting) for _ in range(2)))


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


if __name__ == "__main__":
    main()
