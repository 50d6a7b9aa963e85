"""The Codex CLI, over HTTP and over WebSocket: it calls a tool, sends the result, and shows the answer.

It is not installed by ``make test``; ``make test-clis`` runs this, and with ``CAPTURES=write`` keeps what was sent for
`test_replays`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support import captures
from support.client_servers import answering, call, prompt_of
from support.recorder import Recorder

DOCUMENT = Path(__file__).parents[2] / "docs" / "clients.md"
CALL = call("exec_command", cmd="echo the tool was here")
ANSWER = "The command said that the tool was here."

pytestmark = pytest.mark.skipif(shutil.which("codex") is None, reason="Codex is not installed: make test-clis")


def configuration(url: str, has_websockets: bool) -> str:
    """That of the document, for this server."""
    found = re.search(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found
    text = found[1].replace("http://127.0.0.1:8000/v1", url).replace("smollm2-135m", "scripted")
    return text if has_websockets else text.replace("supports_websockets = true", "supports_websockets = false")


@pytest.mark.parametrize("has_websockets", [False, True], ids=["http", "websocket"])
def test_a_run_with_a_tool(tmp_path: Path, has_websockets: bool) -> None:
    (tmp_path / ".codex").mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ULTRAFAST_API_KEY": "none"}
    command = ["codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "Run the tool."]
    recorder = Recorder()
    # The first frame of a socket is a warm-up, whose answer nobody gets.
    answers = ["-", CALL, ANSWER] if has_websockets else [CALL, ANSWER]
    with answering(*answers, wrap=recorder.wrap) as server:
        (tmp_path / ".codex" / "config.toml").write_text(configuration(server.url, has_websockets))
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == ANSWER
        requests = server.loop.engine.requests  # type: ignore[attr-defined]
        assert [request.tier for request in requests] == ["ultrafast"] * len(answers)
        assert "the tool was here\n" in prompt_of(server)
    methods = [exchange["method"] for exchange in recorder.exchanges]
    assert methods == (["GET", "WEBSOCKET"] if has_websockets else ["GET", "POST", "POST"])
    assert recorder.answers.count('"service_tier":"ultrafast"') >= len(answers)
    if has_websockets:
        warm_up, first, second = recorder.exchanges[1]["frames"]
        assert warm_up["generate"] is False
        assert "previous_response_id" in first
        assert [item["type"] for item in second["input"]] == ["function_call_output"]
    if os.environ.get("CAPTURES") == "write":
        version = subprocess.run(["codex", "--version"], env=environment, capture_output=True, text=True).stdout
        kind = "websocket" if has_websockets else "http"
        captures.write(f"codex-{kind}", captures.neutral(version.strip(), answers, recorder))
