"""Claude Code in print mode: it calls a tool, sends the result, and shows the answer.

See `test_codex` for when it runs.
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
CALL = call("Bash", command="echo the tool was here", description="Say so")
ANSWER = "The command said that the tool was here."

pytestmark = pytest.mark.skipif(shutil.which("claude") is None, reason="Claude Code is not installed: make test-clis")


def environment(url: str, home: Path) -> dict[str, str]:
    """That of the document, for this server."""
    found = re.findall(r"^export (.*ANTHROPIC.*|.*CLAUDE.*)$", DOCUMENT.read_text(), re.MULTILINE)
    variables = dict(setting.split("=", 1) for line in found for setting in line.split())
    assert len(variables) == 5
    variables |= {"ANTHROPIC_BASE_URL": url.removesuffix("/v1"), "ANTHROPIC_MODEL": "scripted"}
    return {"PATH": os.environ["PATH"], "HOME": str(home), **variables}


def test_a_run_with_a_tool(tmp_path: Path) -> None:
    recorder = Recorder()
    with answering(CALL, ANSWER, wrap=recorder.wrap) as server:
        variables = environment(server.url, tmp_path)
        command = ["claude", "-p", "--allowedTools", "Bash(echo:*)", "--", "Run the tool."]
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.strip() == ANSWER
        assert len(server.loop.engine.requests) == 2  # type: ignore[attr-defined]
        assert "the tool was here\n" in prompt_of(server)
    posts = [exchange for exchange in recorder.exchanges if exchange["method"] == "POST"]
    assert {exchange["path"] for exchange in posts} == {"/v1/messages?beta=true"}
    assert {exchange["body"]["stream"] for exchange in posts} == {True}
    if os.environ.get("CAPTURES") == "write":
        version = subprocess.run(["claude", "--version"], env=variables, capture_output=True, text=True).stdout
        captures.write("claude-code", captures.neutral(version.strip(), [CALL, ANSWER], recorder))
