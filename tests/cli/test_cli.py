"""The command line as a user meets it: each test runs the real program."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ultrafast import __version__

COMMANDS = ("serve", "tiers", "top", "chat", "generate", "models", "pull", "info", "bench", "bench engine", "verify")
HEAVY = ("numpy", "tokenizers", "starlette", "uvicorn", "huggingface_hub", "jinja2", "msgspec", "rich", "httpx")
PROGRAM = [sys.executable, "-c", "from ultrafast.cli.main import main; main()"]


def run(*arguments: str, stdin: str = "", cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100"}
    if cache:
        environment |= {"ULTRAFAST_CACHE": str(cache / "models"), "HF_HOME": str(cache / "hub")}
    return subprocess.run([*PROGRAM, *arguments], input=stdin, capture_output=True, text=True, env=environment)


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert f"\n  {command.split()[0]} " in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    done = run(*command.split(), "--help")
    assert done.returncode == 0
    assert f"Example: ultrafast {command}" in done.stdout


@pytest.mark.parametrize("arguments", ["--help", "serve --help", "info --help", "top --help"])
def test_help_imports_nothing_heavy(arguments: str) -> None:
    script = (
        "import sys\n"
        "from ultrafast.cli.main import main\n"
        "try:\n    main()\n"
        f"finally:\n    sys.stderr.write(' '.join(sorted(set({HEAVY!r}) & set(sys.modules))))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments.split()], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("serv", "Did you mean 'serve'?"),
        ("nonsense", "No such command 'nonsense'"),
        ("pull", "Missing argument"),
        ("chat --threads 0", "--threads"),
        ("generate hi --temperature warm", "--temperature"),
        ("bench engin", "Did you mean 'engine'?"),
    ],
)
def test_wrong_usage(arguments: str, says: str) -> None:
    done = run(*arguments.split())
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"ultrafast {__version__}\n")


@pytest.mark.parametrize("arguments", [("chat", " "), ("chat",)])
def test_an_empty_question_is_wrong_usage(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run(*arguments, cache=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ultrafast: error: the question is empty")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command", ["pull {}", "info --model {}", "chat hi --model {}", "generate hi --model {}", "bench engine --model {}"]
)
@pytest.mark.parametrize("model", ["smollm", "missing.gguf", "text.gguf"])
def test_errors_are_one_line(command: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("not a model")
    name = model if model == "smollm" else str(tmp_path / model)
    done = run(*command.format(name).split(), cache=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("ultrafast: error: ")
    assert done.stderr.count("\n") == 1
    assert name in done.stderr


def test_models_on_an_empty_disk(tmp_path: Path) -> None:
    done = run("models", cache=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "smollm2-135m" in done.stdout
    assert "ultrafast pull smollm2-135m" in done.stdout
    (first, *_) = json.loads(run("models", "--json", cache=tmp_path).stdout)
    assert first["name"] == "smollm2-135m"
    assert first["path"] is None
    assert first["licence"] == "Apache-2.0"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [("--max-tokens 100000", "context"), ("--stop ''", "stop")],
)
def test_requests_are_refused_in_one_line(arguments: str, problem: str, tiny_model_path: Path) -> None:
    done = run("generate", "hi", "--model", str(tiny_model_path), *shlex.split(arguments))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ultrafast: error: ")
    assert done.stderr.count("\n") == 1
    assert problem in done.stderr


def test_generate(tiny_model_path: Path) -> None:
    arguments = ("generate", "--model", str(tiny_model_path), "--max-tokens", "9", "--temperature", "1", "--seed", "5")
    answer = json.loads(run(*arguments, "--json", "hi").stdout)
    assert answer["completion_tokens"] == len(answer["token_ids"]) == 9
    assert answer["finish_reason"] == "length"
    assert answer["decode_s"] >= 0
    assert run(*arguments, "hi").stdout == answer["text"] + "\n"
    assert run(*arguments, "-", stdin="hi").stdout == answer["text"] + "\n"
    assert run(*arguments, "ho").stdout != answer["text"] + "\n"


def test_instruction_set_and_context_are_honoured(tiny_model_path: Path) -> None:
    for command in ("chat", "generate"):
        arguments = (command, "hi", "--model", str(tiny_model_path), "--max-tokens", "9")
        assert "isa='mmx'" in run(*arguments, "--isa", "mmx").stderr
        assert "context" in run(*arguments, "--context", "8").stderr


def test_a_text_cut_short_ends_its_line(tiny_model_path: Path) -> None:
    script = (
        "import signal\n"
        "from ultrafast.cli.main import main\n"
        "from ultrafast.engine.engine import Engine\n"
        "from ultrafast.types import TokenDelta\n"
        "def stream(*_, **__):\n"
        "    yield TokenDelta('Once upon', (1,))\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "Engine.stream = stream\n"
        "main()\n"
    )
    arguments = ("generate", "hi", "--model", str(tiny_model_path))
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "Once upon\n")


def test_chat_once(tiny_model_path: Path) -> None:
    arguments = ("chat", "--model", str(tiny_model_path), "--max-tokens", "5")
    asked, piped = run(*arguments, "hi"), run(*arguments, stdin="hi")
    assert (asked.returncode, piped.returncode) == (0, 0)
    assert asked.stdout == piped.stdout != ""
    assert asked.stderr.startswith("[5 tokens")
    assert run(*arguments, "hi", "--system", "Be brief.").stdout != asked.stdout


def test_info(tiny_model_path: Path) -> None:
    facts = json.loads(
        run("info", "--model", str(tiny_model_path), "--threads", "1", "--isa", "scalar", "--json").stdout
    )
    assert facts["engine"]["isa"] == "scalar"
    assert facts["engine"]["threads"] == 1
    assert facts["model"]["path"] == str(tiny_model_path)
    limit = facts["limit"]
    assert limit["bound_tokens_per_s"] == limit["read_bytes_per_s"] / facts["model"]["bytes_per_token"] > 0
    shown = run("info", "--model", str(tiny_model_path), "--threads", "1").stdout
    assert ", 1 thread, " in shown
    rows = ["model", "file", "shape", "context", "machine", "caches", "memory", "engine", "limit"]
    assert [line.split()[0] for line in shown.splitlines()] == rows


def test_bench_engine(tiny_model_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "speed.json"
    options = ["--repeats", "1", "--quick", "--profile", "--json", str(file)]
    done = run("bench", "engine", "--model", str(tiny_model_path), *options)
    assert done.returncode == 0
    assert "limits in tokens/s by" in done.stdout
    assert "gate_up" in done.stdout
    document = json.loads(file.read_text())
    assert document["complete"]
    assert all(figure["median"] > 0 for figure in document["tokens_per_s"].values())
    refused = run("bench", "engine", "--model", str(tiny_model_path), "--json", str(tmp_path / "no" / "x.json"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "No such file" in refused.stderr


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([*PROGRAM, "models"], stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_interrupt_has_no_traceback() -> None:
    script = (
        "import signal, sys\n"
        "from ultrafast.cli.main import main\n"
        "class Interrupted:\n"
        "    isatty = staticmethod(lambda: False)\n"
        "    read = staticmethod(lambda: signal.raise_signal(signal.SIGINT))\n"
        "sys.stdin = Interrupted()\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, "chat"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_more_threads_than_cores_get_a_warning(tiny_model_path: Path) -> None:
    for threads, warned in (("1", False), ("200", True)):
        done = run("generate", "hello", "--model", str(tiny_model_path), "--threads", threads, "--max-tokens", "1")
        assert done.returncode == 0
        assert ("200 threads on" in done.stderr) is warned
