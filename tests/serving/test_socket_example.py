"""The example in docs/websocket.md runs as it stands, but for the address and the model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.marked_chat import marked_engine
from support.served import served

DOCUMENT = Path(__file__).parents[2] / "docs/websocket.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)
    assert len(example) == 1
    with served(marked_engine("Rotterdam.", "Cranes.")) as server:
        code = example[0].replace("http://127.0.0.1:8000/v1", server.url).replace("smollm2-135m", "scripted")
        capsys.readouterr()
        exec(compile(code, DOCUMENT.name, "exec"), {})
        lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["Rotterdam.", "Cranes."]
    assert re.fullmatch(r"\d+ of \d+ tokens were in the cache", lines[2])
