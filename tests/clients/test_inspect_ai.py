"""`inspect eval` of `inspect-ai`, with its ``openai-api`` provider: small tasks, on Chat Completions and on Responses.

A program of its own: the package patches asyncio for its whole process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.client_servers import answering, call
from support.served import Served

TASKS = Path(__file__).parent / "inspect_tasks.py"


def evaluate(server: Served, task: str, folder: Path, *options: str) -> Any:
    """Run a task and return its log."""
    model = f"openai-api/ultrafast/{server.loop.engine.model_id}"
    command = [sys.executable, "-m", "inspect_ai", "eval", f"{TASKS}@{task}", "--model", model, "--max-samples", "1"]
    command += ["--max-retries", "0", "--display", "none", "--log-format", "json", "--log-dir", str(folder), *options]
    environment = {**os.environ, "ULTRAFAST_BASE_URL": server.url, "ULTRAFAST_API_KEY": "none", "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = folder.glob("*.json")
    log = json.loads(path.read_text())
    assert log["status"] == "success", log
    return log


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_three_samples_with_a_tool(tmp_path: Path, api: str) -> None:
    turns = [turn for x in (1, 2, 3) for turn in (call("add", x=x, y=1), f"It is {x + 1 if x < 3 else 'unknown'}.")]
    with answering(*turns) as server:
        log = evaluate(server, "sums", tmp_path, *(["-M", "responses_api=true"] if api == "responses" else []))
        assert len(server.loop.engine.requests) == len(turns)  # type: ignore[attr-defined]
    samples = log["samples"]
    assert [sample["scores"]["includes"]["value"] for sample in samples] == ["C", "C", "I"]
    assert [sample["messages"][-2]["content"] for sample in samples] == ["2", "3", "4"]
    assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == pytest.approx(2 / 3)


def test_a_task_on_the_embedded_model(tmp_path: Path, embedded: Served) -> None:
    log = evaluate(embedded, "words", tmp_path, "--temperature", "0", "--max-tokens", "16")
    assert len(log["samples"]) == 3
    for sample in log["samples"]:
        assert 1 <= sample["output"]["usage"]["output_tokens"] <= 16
        assert sample["output"]["choices"][0]["message"]["content"]
