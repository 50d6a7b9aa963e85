"""How long a mask takes: for each token of documents that a model could write."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

from grammar_cases.documents import DOCUMENTS
from grammar_cases.libraries import State, libraries
from ultrafast.models import fetch
from ultrafast.models.gguf import GgufFile
from ultrafast.models.tokenizer import Tokenizer

_ROUNDS = 9
_COLUMNS = {"first": 10, "compile": 10, "median": 9, "p99": 9, "worst": 9, "accept": 9}


def embedded_tokenizer() -> Tokenizer:
    """Of the embedded model."""
    with GgufFile(fetch.resolve("smollm2-135m")) as file:
        return Tokenizer.from_gguf(file.metadata)


def measure(rounds: int = _ROUNDS) -> dict[str, Any]:
    """Print a table, and return its figures, in microseconds."""
    tokenizer = embedded_tokenizer()
    known = libraries(tokenizer)
    figures: dict[str, Any] = {"vocabulary": tokenizer.vocab_size, "microseconds": {}}
    print(f"vocabulary of {tokenizer.vocab_size} tokens; microseconds; {rounds} rounds in turns")
    print(f"{'document':12}{'library':12}{'tokens':>7}" + "".join(f"{key:>{width}}" for key, width in _COLUMNS.items()))
    for name, schema, document in DOCUMENTS:
        tokens = tokenizer.encode(json.dumps(document, ensure_ascii=False))
        samples: dict[str, list[tuple[float, list[float], list[float]]]] = {library.name: [] for library in known}
        for round_number in range(rounds):
            for library in known:
                start = time.perf_counter()
                state = library.compile(_unseen(schema, round_number))()
                compiled = time.perf_counter() - start
                samples[library.name].append((compiled, *_along(state, tokens)))
        for library in known:
            row = _row(samples[library.name])
            figures["microseconds"].setdefault(name, {})[library.name] = row
            values = "".join(f"{row[key]:>{width},.0f}" for key, width in _COLUMNS.items())
            print(f"{name:12}{library.name:12}{len(tokens):>7}{values}")
    return figures


def _unseen(schema: dict[str, Any], number: int) -> dict[str, Any]:
    """The schema with one more way to satisfy it, so that no cache knows it."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    return {"anyOf": [inner, {"const": f"round {number}"}], "$defs": schema.get("$defs", {})}


def _along(state: State, tokens: list[int]) -> tuple[list[float], list[float]]:
    """Seconds for each mask, and for each token accepted."""
    masks, accepts = [], []
    for token in tokens:
        start = time.perf_counter()
        state.mask()
        masks.append(time.perf_counter() - start)
        if not state.allows(token):
            raise SystemExit(f"token {token} of a document is not allowed")
        start = time.perf_counter()
        state.accept(token)
        accepts.append(time.perf_counter() - start)
    return masks, accepts


def _row(samples: list[tuple[float, list[float], list[float]]]) -> dict[str, float]:
    """Microseconds. ``first`` is the first compilation, with what it prepares for all later ones."""
    compiles = [compiled for compiled, _, _ in samples]
    masks = sorted(seconds for _, masks, _ in samples for seconds in masks)
    accepts = [seconds for _, _, accepts in samples for seconds in accepts]
    row = {
        "first": compiles[0],
        "compile": statistics.median(compiles[1:]),
        "median": statistics.median(masks),
        "p99": masks[len(masks) * 99 // 100],
        "worst": masks[-1],
        "accept": statistics.median(accepts),
    }
    return {key: seconds * 1e6 for key, seconds in row.items()}
