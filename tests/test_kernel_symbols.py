"""No code compiled for one instruction set may be called on a processor without it.

A weak symbol (an inline function of a header, say) in a kernel object may become the one copy that the linker keeps
for every caller. So kernel objects may hold none, and what they export names its instruction set.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

BUILD = Path(__file__).parent.parent / "build"
WEAK = "uVvWw"  # nm(1); a weak definition, or a weak reference that another object may bind


def kernel_objects() -> dict[str, list[Path]]:
    """Objects of the kernel libraries of every optimised build there is, by instruction set.

    Sanitizer builds are left out: they add symbols of their own.
    """
    objects = defaultdict(list)
    for path in BUILD.glob("*/CMakeFiles/kernels_*.dir/**/*.o"):
        cache = BUILD / path.relative_to(BUILD).parts[0] / "CMakeCache.txt"
        if "-fsanitize" not in cache.read_text():
            match = re.search(r"kernels_(\w+)\.dir", str(path))
            assert match
            objects[match[1]].append(path)
    return objects


def symbols(path: Path) -> list[tuple[str, str]]:
    """Kind and name, as nm(1) has them, of every symbol of an object."""
    lines = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(kind, name) for kind, name in (line.split()[-2:] for line in lines)]


def unqualified(name: str) -> str:
    """The function's own name in a (mangled) symbol: nested names end in it, before E or the parameters."""
    parts, rest = [], name.removeprefix("_Z").lstrip("NKrS")
    while match := re.match(r"\d+", rest):
        end = match.end() + int(match[0])
        parts.append(rest[match.end() : end])
        rest = rest[end:]
    return parts[-1] if parts else name


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
def test_kernel_objects_export_only_their_own() -> None:
    objects = kernel_objects()
    if not objects:
        pytest.skip("no kernel objects under build/: run `make serve` or `make test`")
    assert "scalar" in objects
    for isa, paths in objects.items():
        for path in paths:
            found = symbols(path)
            assert [name for kind, name in found if kind in WEAK] == [], path
            exported = [unqualified(name) for kind, name in found if kind.isupper() and kind != "U"]
            assert exported, path
            assert [name for name in exported if not name.endswith(isa)] == [], path


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN9ultrafast7kernels12table_scalarEv", "table_scalar"),
        ("_Z10table_avx2v", "table_avx2"),
        ("table_avx2", "table_avx2"),
    ],
)
def test_unqualified(symbol: str, name: str) -> None:
    assert unqualified(symbol) == name
