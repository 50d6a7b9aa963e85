"""The programs in docs/clients.md run as they stand there, against the model that they name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.served import Served

DOCUMENT = Path(__file__).parents[2] / "docs" / "clients.md"
JS = Path(__file__).parent / "js"


def programs(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def output_of(server: Served, command: list[str], program: str) -> str:
    address = server.url.removesuffix("/v1")
    program = program.replace("http://127.0.0.1:8000", address)
    done = subprocess.run([*command, program], cwd=JS, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", programs("python"), ids=lambda text: re.search(r"from (\w+)", text)[1])
def test_a_python_program(embedded: Served, program: str) -> None:
    assert output_of(embedded, [sys.executable, "-c"], program).strip()


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
@pytest.mark.skipif(not (JS / "node_modules").exists(), reason="the openai package for JavaScript is not installed")
def test_the_javascript_program(embedded: Served) -> None:
    [program] = programs("js")
    assert output_of(embedded, ["node", "--input-type=module", "-e"], program).strip().endswith("ultrafast")
