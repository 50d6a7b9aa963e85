"""What Codex and Claude Code sent, sent again: see `support.captures`. The programs themselves are not needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from support.captures import FOLDER, expand
from support.client_servers import answering
from support.recorder import Recorder
from support.served import Served

LAST_EVENTS = {"response.completed", "message_stop"}


def events_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def send_request(server: Served, exchange: dict[str, Any], ids: list[str]) -> list[dict[str, Any]]:
    """Send one request; returns the events of its answer, none where that is no stream."""
    url = server.url.removesuffix("/v1") + exchange["path"]
    body = expand(exchange.get("body"), ids)
    answer = httpx.request(exchange["method"], url, headers=exchange["headers"], json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return []
    assert answer.headers["x-ultrafast-tier"] == body.get("service_tier", body.get("speed", "default"))
    return events_of(answer.text)


def send_frames(server: Served, exchange: dict[str, Any], ids: list[str]) -> list[list[dict[str, Any]]]:
    """Send the frames of a socket, each when the answer of the one before is whole."""
    answers = []
    url = server.url.replace("http", "ws", 1).removesuffix("/v1") + exchange["path"]
    headers = {name: value for name, value in exchange["headers"].items() if name != "sec-websocket-extensions"}
    with connect(url, additional_headers=headers, max_size=None) as socket:  # compresses, as Codex does
        for frame in exchange["frames"]:
            socket.send(json.dumps(expand(frame, ids)))
            events = [json.loads(socket.recv(60))]
            while events[-1]["type"] != "response.completed":
                assert events[-1]["type"] != "error", events[-1]
                events.append(json.loads(socket.recv(60)))
            assert events[-1]["response"]["service_tier"] == frame["service_tier"]
            answers.append(events)
    return answers


def spoken(events: list[dict[str, Any]]) -> str:
    """What the user reads of an answer, in either format."""
    text = ""
    for event in events:
        if event["type"] == "response.output_text.delta":
            text += event["delta"]
        elif event["type"] == "content_block_delta":
            text += event["delta"].get("text", "")
    return text


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_capture_is_answered_as_it_was(path: Path) -> None:
    capture = json.loads(path.read_text())
    recorder = Recorder()
    streams: list[list[dict[str, Any]]] = []
    with answering(*capture["answers"], model_id=capture["model_id"], wrap=recorder.wrap) as server:
        for exchange in capture["exchanges"]:
            if exchange["method"] == "WEBSOCKET":
                streams += send_frames(server, exchange, recorder.ids)
            elif events := send_request(server, exchange, recorder.ids):
                streams.append(events)
        assert len(server.loop.engine.requests) == len(capture["answers"])  # type: ignore[attr-defined]
    assert len(streams) == len(capture["answers"])
    assert {events[-1]["type"] for events in streams} <= LAST_EVENTS
    assert spoken(streams[-1]) == capture["answers"][-1]


def test_there_are_captures_of_both() -> None:
    assert {path.stem.split("-")[0] for path in FOLDER.glob("*.json")} == {"claude", "codex"}
