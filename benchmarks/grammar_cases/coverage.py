"""How much of JSON Schema is covered: the public test suite, https://github.com/json-schema-org/JSON-Schema-Test-Suite.

Each test has a schema, an instance, and whether it is valid. A schema is refused or compiled; the grammar of a compiled
one takes the bytes of the instance, written as ``json.dumps`` does, or not. To take an invalid one is a fault; not to
take a valid one only means that a model will not write it (properties in another order, say, or ``1.0`` for ``1``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grammar_cases.libraries import Llguidance, State, Xgrammar, libraries
from ultrafast.errors import RequestError

_DRAFTS = ("draft2020-12", "draft7")
_REFUSALS = (ValueError, RuntimeError, RequestError)


class Bytes:
    """A tokenizer of bytes: what is asked is about texts, not tokens."""

    vocab_size = 257
    longest_token = 5
    eog_ids = frozenset({256})
    strips_leading_space = False

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b"<end>"

    def is_special(self, token: int) -> bool:
        return token == 256


def measure(suite: Path) -> dict[str, Any]:
    """Print a table, and return its figures."""
    figures: dict[str, Any] = {}
    columns = ("schemas", "compiled", "valid taken", "valid not", "invalid taken", "invalid not")
    print(f"{'':14}{'library':12}" + "".join(f"{column:>15}" for column in columns))
    for draft in _DRAFTS:
        groups = list(_groups(suite / "tests" / draft))
        for library in libraries(Bytes()):  # type: ignore[arg-type]
            counts = _covered(library, groups)
            figures.setdefault(draft, {})[library.name] = dict(counts)
            print(f"{draft:14}{library.name:12}" + "".join(f"{counts[column]:>15}" for column in columns))
            for keyword, number in sorted(counts.items()):
                if keyword.startswith("in "):
                    print(f"{'':26}invalid taken {keyword}: {number}")
    return figures


def _groups(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name of the file, and a schema with its tests; of the required part of the suite."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise SystemExit(f"{folder} has no tests: name a checkout of the suite")
    for file in files:
        for group in json.loads(file.read_text()):
            yield file.stem, group


def _covered(library: Llguidance | Xgrammar, groups: list[tuple[str, dict[str, Any]]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, group in groups:
        counts["schemas"] += 1
        try:
            states = library.compile(group["schema"])
        except _REFUSALS:
            continue
        counts["compiled"] += 1
        for test in group["tests"]:
            taken = _takes(states(), json.dumps(test["data"], ensure_ascii=False).encode())
            counts[f"{'valid' if test['valid'] else 'invalid'} {'taken' if taken else 'not'}"] += 1
            if taken and not test["valid"]:
                counts[f"in {name}"] += 1
    return counts


def _takes(state: State, text: bytes) -> bool:
    try:
        for token in [*text, 256]:
            state.mask()
            if not state.allows(token):
                return False
            state.accept(token)
    except _REFUSALS:
        return False
    return True
