"""What real clients sent, kept without their prompts, keys and names of machines, and sent again.

A capture is ``{"client", "model_id", "answers", "exchanges"}``: who sent, to which model, what a scripted engine
answered, and `Recorder.exchanges` in which ``"lorem:N"`` stands for a text of N characters and ``"given:N"`` for the
N-th id that the server gave.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from support.recorder import Recorder

FOLDER = Path(__file__).parent.parent / "clients" / "captures"

_LOREM = "lorem ipsum dolor sit amet consectetur adipiscing elit "
_MARK = re.compile(r"(lorem|given):(\d+)")
_OF_THE_CONNECTION = {
    "connection",
    "content-length",
    "host",
    "sec-websocket-key",
    "sec-websocket-version",
    "upgrade",
}
_TELLING_HEADERS = re.compile(
    r"accept|accept-encoding|accept-language|anthropic-.*|content-type|openai-beta|originator|sec-websocket-extensions"
    r"|user-agent|x-app|x-codex-beta-features|x-stainless-(?!arch|os).*"
)
# Values under these keys are words of the protocol, or answers of ours that came back.
_WORDS = {
    "arguments",
    "display",
    "effort",
    "include",
    "keep",
    "mode",
    "model",
    "name",
    "namespace",
    "role",
    "service_tier",
}
_WORDS |= {"speed", "status", "summary", "tool_choice", "ttl", "type"}
_SCHEMAS = {"parameters", "input_schema"}
_PROSE = {"default", "description", "examples", "title"}


def neutral(client: str, answers: list[str], recorder: Recorder, *, model_id: str = "scripted") -> dict[str, Any]:
    """The capture of what was recorded."""
    given = {found: f"given:{index}" for index, found in enumerate(recorder.ids)}
    exchanges = []
    for exchange in recorder.exchanges:
        kept = {"method": exchange["method"], "path": exchange["path"], "headers": _headers(exchange["headers"])}
        for part in ("body", "frames"):
            if part in exchange:
                kept[part] = _value(exchange[part], "", given)
        exchanges.append(kept)
    return {"client": client, "model_id": model_id, "answers": answers, "exchanges": exchanges}


def _headers(headers: dict[str, str]) -> dict[str, str]:
    kept = {}
    for name, value in headers.items():
        if name in ("authorization", "x-api-key"):
            kept[name] = "Bearer none" if name == "authorization" else "none"
        elif name not in _OF_THE_CONNECTION:
            kept[name] = value if _TELLING_HEADERS.fullmatch(name) else "neutral"
    return kept


def _value(value: Any, key: str, given: dict[str, str]) -> Any:
    if isinstance(value, dict):
        if key in _SCHEMAS:
            return _schema(value)
        if key in ("client_metadata", "metadata"):
            return dict.fromkeys(value, "neutral")
        return {name: _value(child, name, given) for name, child in value.items()}
    if isinstance(value, list):
        return [_value(child, key, given) for child in value]
    if not isinstance(value, str) or key in _WORDS:
        return value
    if key == "id" or key.endswith(("_id", "_key")):
        return given.get(value, "neutral")
    return f"lorem:{len(value)}"


def _schema(value: Any) -> Any:
    """A JSON Schema without its prose."""
    if isinstance(value, dict):
        return {
            name: f"lorem:{len(child)}" if name in _PROSE and isinstance(child, str) else _schema(child)
            for name, child in value.items()
        }
    return [_schema(child) for child in value] if isinstance(value, list) else value


def expand(value: Any, ids: list[str]) -> Any:
    """What to send: texts in place of their lengths, and the ids that the server gave this time."""
    if isinstance(value, dict):
        return {name: expand(child, ids) for name, child in value.items()}
    if isinstance(value, list):
        return [expand(child, ids) for child in value]
    mark = _MARK.fullmatch(value) if isinstance(value, str) else None
    if mark is None:
        return value
    number = int(mark[2])
    return ids[number] if mark[1] == "given" else (_LOREM * (number // len(_LOREM) + 1))[:number]


def write(name: str, capture: dict[str, Any]) -> None:
    (FOLDER / f"{name}.json").write_text(json.dumps(capture, indent=1, ensure_ascii=False) + "\n")
