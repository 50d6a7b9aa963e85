"""`ultrafast serve` with a configuration file, and what is refused before anything is loaded."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support.tiny import write_tiny_model

PROGRAM = [sys.executable, "-c", "from ultrafast.cli.main import main; main()", "serve"]


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, str]]:
    """The models named in the ready line, and the address."""
    with subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = re.fullmatch(r"Ultrafast serving (.+) at (\S+/v1)  \(ready in \d+\.\d s\)\n", line)
            assert ready, (line, process.communicate())
            yield ready[1], ready[2]
        finally:
            process.kill()


def refused(*arguments: str) -> str:
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ultrafast: error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture
def two_models(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "one.gguf")
    write_tiny_model(tmp_path / "two.gguf")
    path = tmp_path / "u.toml"
    path.write_text(f"""
        [server]
        port = 0
        [models."{tmp_path}/one.gguf"]
        threads = 1
        context = 256
        tiers.ultrafast = {{slots = 0, overflow = "reject"}}
        [models."{tmp_path}/two.gguf"]
        threads = 1
        tiers.ultrafast = {{slots = 1}}
    """)
    return path


def ask(url: str, model: str) -> httpx.Response:
    body = {"model": model, "input": "Hi", "max_output_tokens": 3, "service_tier": "ultrafast"}
    return httpx.post(f"{url}/responses", json=body, timeout=60)


def test_a_configuration_of_two_models(two_models: Path) -> None:
    with serving("--config", str(two_models)) as (models, url):
        assert models == "one, two"
        listed = httpx.get(f"{url}/models").json()["data"]
        assert [model["id"] for model in listed] == ["one", "two"]
        assert listed[0]["context_window"] == 256 < listed[1]["context_window"]
        closed = ask(url, "one")
        assert closed.status_code == 400
        assert "0 slots" in closed.json()["error"]["message"]
        served = ask(url, "two")
        assert served.status_code == 200
        assert served.headers["x-ultrafast-tier"] == served.json()["service_tier"] == "ultrafast"


def test_options_beat_the_file(two_models: Path) -> None:
    model = str(two_models.with_name("one.gguf"))
    with serving("--config", str(two_models), "--model", model, "--context", "128") as (models, url):
        assert models == "one"
        (listed,) = httpx.get(f"{url}/models").json()["data"]
        assert listed["context_window"] == 128
        assert ask(url, "one").status_code == 400, "the file's tiers hold still"


def test_mistakes_are_told_before_anything_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "u.toml"
    path.write_text('[server]\nhost = "127.0.0.1"\nprt = 1\n')
    assert f"{path}, line 3: server.prt: unknown key; did you mean 'port'?" in refused("--config", str(path))
    assert "cannot read" in refused("--config", str(tmp_path / "none.toml"))


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    text = "[server]\nport = 0\n"
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        text += f'[models."{write_tiny_model(tmp_path / folder / "same.gguf")}"]\nthreads = 1\n'
    path = tmp_path / "u.toml"
    path.write_text(text)
    assert "two models would be served as 'same'" in refused("--config", str(path))


def test_no_file_is_read_unless_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "ultrafast.toml").write_text("broken")
    model = write_tiny_model(tmp_path / "tiny.gguf")
    command = [*PROGRAM, "--model", str(model), "--threads", "1", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Ultrafast serving tiny at ")
        process.kill()
