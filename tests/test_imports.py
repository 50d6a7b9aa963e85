"""Imports point one way; any other edge fails here. The picture of it is in docs/structure.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/ultrafast"
NATIVE = ROOT / "native"

ANYWHERE = {"types", "errors"}  # these import nothing of ours
MAY_IMPORT = {
    "types": set(),
    "errors": set(),
    "report": {"report"},
    "traces": set(),
    "config": {"engine", "serving"},
    "models": {"models"},
    "chat": {"chat"},
    "engine": {"engine", "models", "chat"},
    "serving": {"serving", "engine", "chat"},
    "bench": {"bench", "report", "traces", "engine", "models"},
    "wafer": {"wafer", "report", "traces", "models"},
    "cli": {"cli", "config", "serving", "engine", "models", "bench", "wafer", "report"},
    "__init__": {"engine"},  # the public names
}
MAY_INCLUDE = {
    "kernels": {"kernels"},
    "runtime": {"runtime"},
    "model": {"model", "runtime", "kernels"},
    "decode": {"decode", "model", "runtime", "kernels"},
    "bindings.cpp": {"decode", "model", "runtime", "kernels"},
    "tests": {"tests", "decode", "model", "runtime", "kernels"},
}
# Only under a macro that native/tests alone define, to run these kernels on processors without AVX-512.
EXCEPTION = ("kernels/lanes_avx512vnni.h", "tests/emulate_avx512.h")


def our_imports(tree: ast.AST, module: str) -> Iterator[str]:
    """Dotted names below `ultrafast` that a module imports anywhere, under TYPE_CHECKING and in functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = module.split(".")[: -node.level]
                base = ".".join(["ultrafast", *parent, *filter(None, [base])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.removeprefix("ultrafast.") for name in names if name.startswith("ultrafast."))


def forbidden(module: str, tree: ast.AST) -> list[str]:
    """The imports in a module (dotted, below `ultrafast`) that the rule does not allow."""
    package = module.split(".")[0]
    allowed = MAY_IMPORT[package] | (set() if package in ANYWHERE else ANYWHERE)
    wrong = []
    for name in our_imports(tree, module):
        target = name.split(".")[0]
        if target == "_native":
            if module != "engine.native":
                wrong.append(name)
        elif target not in allowed and not target.startswith("__"):
            wrong.append(name)
    return wrong


def modules() -> list[str]:
    files = (path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py"))
    return sorted(".".join(file.parts) for file in files)


@pytest.mark.parametrize("module", modules())
def test_python_imports(module: str) -> None:
    path = SOURCE / (module.replace(".", "/") + ".py")
    assert forbidden(module, ast.parse(path.read_text(), filename=str(path))) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("models.gguf", "from ultrafast.engine import topology"),
        ("models.gguf", "from ..engine.engine import Engine"),
        ("engine.engine", "import ultrafast._native"),
        ("engine.engine", "from ultrafast import _native"),
        ("engine.engine", "from ultrafast.serving import app"),
        ("serving.wire.chat", "from ultrafast.models.gguf import GgufFile"),
        ("serving.wire.chat", "def f():\n    if TYPE_CHECKING:\n        from ...cli import main"),
        ("bench.engine.speed", "from ultrafast.serving import app"),
        ("types", "from ultrafast.errors import ConfigError"),
    ],
)
def test_the_rule_catches(module: str, line: str) -> None:
    assert forbidden(module, ast.parse(line))


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("engine.native", "from ultrafast import _native"),
        ("engine.engine", "from .scheduler import Scheduler"),
        ("serving.wire.chat", "from ultrafast.types import Message"),
        ("cli.main", "from ultrafast import __version__"),
    ],
)
def test_the_rule_allows(module: str, line: str) -> None:
    assert forbidden(module, ast.parse(line)) == []


def native_files() -> list[Path]:
    return sorted(path for path in NATIVE.rglob("*") if path.suffix in (".h", ".cpp"))


@pytest.mark.parametrize("path", native_files(), ids=lambda path: str(path.relative_to(NATIVE)))
def test_native_includes(path: Path) -> None:
    layer = path.relative_to(NATIVE).parts[0]
    for included in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE):
        if (str(path.relative_to(NATIVE)), included) == EXCEPTION:
            continue
        target = next((base / included for base in (NATIVE, path.parent) if (base / included).is_file()), None)
        assert target, f"{included} is no header of ours: write it in <>"
        assert target.resolve().relative_to(NATIVE).parts[0] in MAY_INCLUDE[layer], included


def test_there_is_native_code() -> None:
    assert {path.relative_to(NATIVE).parts[0] for path in native_files()} >= {"kernels", "model", "decode"}
