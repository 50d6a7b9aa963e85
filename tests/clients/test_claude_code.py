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
from support.served import Served

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


def run(server: Served, home: Path, *arguments: str, **variables: str) -> str:
    """What the program prints."""
    done = subprocess.run(
        ["claude", "-p", *arguments],
        cwd=home,
        env=environment(server.url, home) | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def keep(name: str, answers: list[str], recorder: Recorder, **options: str) -> None:
    if os.environ.get("CAPTURES") == "write":
        version = subprocess.run(["claude", "--version"], capture_output=True, text=True).stdout
        captures.write(name, captures.neutral(version.strip(), answers, recorder, **options))


def test_a_run_with_a_tool(tmp_path: Path) -> None:
    recorder = Recorder()
    with answering(CALL, ANSWER, wrap=recorder.wrap) as server:
        assert run(server, tmp_path, "--allowedTools", "Bash(echo:*)", "--", "Run the tool.") == ANSWER
        assert len(server.loop.engine.requests) == 2  # type: ignore[attr-defined]
        assert "the tool was here\n" in prompt_of(server)
    posts = [exchange for exchange in recorder.exchanges if exchange["method"] == "POST"]
    assert {exchange["path"] for exchange in posts} == {"/v1/messages?beta=true"}
    assert {exchange["body"]["stream"] for exchange in posts} == {True}
    keep("claude-code", [CALL, ANSWER], recorder)


def test_fast_mode_is_the_fast_tier(tmp_path: Path) -> None:
    """Claude Code offers it for models of some names only."""
    model_id = "claude-opus-5"
    recorder = Recorder()
    with answering("Hi.", model_id=model_id, wrap=recorder.wrap) as server:
        arguments = ["--settings", '{"fastMode": true}', "--model", model_id, "Say hi."]
        assert run(server, tmp_path, *arguments, CLAUDE_CODE_SKIP_FAST_MODE_ORG_CHECK="1") == "Hi."
        assert [request.tier for request in server.loop.engine.requests] == ["fast"]  # type: ignore[attr-defined]
    assert '"speed":"fast"' in recorder.answers
    keep("claude-code-fast", ["Hi."], recorder, model_id=model_id)
