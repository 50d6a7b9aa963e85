"""The `openai` package for JavaScript, run by node: see ``js/client.mjs``."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.client_servers import answering, call, prompt_of
from support.served import Served

FOLDER = Path(__file__).parent / "js"

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed"),
    pytest.mark.skipif(
        not (FOLDER / "node_modules" / "openai").exists(),
        reason="the openai package for JavaScript is not installed: run `make test`, or `npm ci` in tests/clients/js",
    ),
]
CALL = call("weather", city="Oslo")


def result_of(server: Served, case: str) -> Any:
    command = ["node", "client.mjs", server.url, server.loop.engine.model_id, case]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_chat() -> None:
    with answering("Quick 🚀.") as server:
        plain = result_of(server, "chat")
        assert (plain["text"], plain["tier"]) == ("Quick 🚀.", "fast")
        streamed = result_of(server, "chatStream")
        assert streamed["text"] == "Quick 🚀."
        assert streamed["usage"] == plain["usage"]


def test_the_tool_runner_of_chat() -> None:
    with answering(CALL, "Cold.") as server:
        assert result_of(server, "chatTools") == {"text": "Cold.", "roles": ["user", "assistant", "tool", "assistant"]}
        assert "3 degrees in Oslo" in prompt_of(server)


def test_responses() -> None:
    with answering("Quick 🚀.") as server:
        answer = result_of(server, "responses")
    assert answer == {"text": "Quick 🚀.", "tier": "ultrafast", "status": "completed"}


def test_a_stream_of_responses_with_a_call() -> None:
    with answering(CALL) as server:
        result = result_of(server, "responsesStream")
    assert result["calls"] == [["weather", {"city": "Oslo"}]]
    assert {"response.created", "response.function_call_arguments.delta", "response.completed"} <= {*result["types"]}


def test_turns_with_a_tool() -> None:
    with answering(CALL, "Cold.") as server:
        assert result_of(server, "responsesTools") == {"called": ["weather", {"city": "Oslo"}], "text": "Cold."}
        assert "3 degrees" in prompt_of(server)


def test_turns_over_one_socket() -> None:
    with answering("One.", "Two.") as server:
        result = result_of(server, "socket")
        assert result == {"texts": ["One.", "Two."], "follows": True, "first": "response.created"}
        assert "One." in prompt_of(server)


def test_errors_have_their_class_and_their_field() -> None:
    with answering("Hi.") as server:
        assert result_of(server, "errors") == {
            "missing": [True, "model_not_found", "model", True],
            "wrong": [True, 400, "temperature"],
        }


def test_the_embedded_model(embedded: Served) -> None:
    called = result_of(embedded, "responsesTools")
    assert called["called"][0] == "weather"
    assert set(called["called"][1]) == {"city"}
    assert result_of(embedded, "chat")["usage"]["completion_tokens"] >= 1
