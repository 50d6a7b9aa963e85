"""Driving a constraint as sampling does."""

from __future__ import annotations

import ctypes
import json
import random
from typing import Any

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLTokenizer

from ultrafast.chat.schema import library_schema
from ultrafast.engine.grammar import Constraint

_BYTES = LLTokenizer("byte")


def mask(constraint: Constraint, vocab_size: int) -> npt.NDArray[np.bool_]:
    """Which tokens may come next: [vocab_size]. What lies behind a mask must stay as it was."""
    words = (vocab_size + 31) // 32
    memory = (ctypes.c_uint32 * (words + 1))(*[0] * words, 0xDEADBEEF)
    constraint.mask_into(ctypes.addressof(memory))
    assert memory[words] == 0xDEADBEEF
    bits = np.unpackbits(np.frombuffer(memory, np.uint8, words * 4), bitorder="little").astype(np.bool_)
    assert not bits[vocab_size:].any()
    return bits[:vocab_size]


def allowed(constraint: Constraint, vocab_size: int) -> list[int]:
    """Ids of the tokens that may come next."""
    ids: list[int] = np.flatnonzero(mask(constraint, vocab_size)).tolist()
    return ids


def write(constraint: Constraint, tokens: list[int], vocab_size: int) -> bool:
    """Accept ``tokens`` one after the other, up to the first that is not allowed; whether all were."""
    for token in tokens:
        if not mask(constraint, vocab_size)[token]:
            return False
        constraint.accept(token)
    return True


def wander(constraint: Constraint, tokenizer: Any, rng: random.Random, *, max_tokens: int) -> tuple[bytes, bool]:
    """What a model that knows nothing writes: any allowed token, short ones and the end rather more often, since most
    tokens are words. Returns the bytes, and whether the text came to its end."""
    text = b""
    for _ in range(max_tokens):
        bits = mask(constraint, tokenizer.vocab_size)
        ends = [token for token in sorted(tokenizer.eog_ids) if bits[token]]
        if ends and (rng.random() < 0.3 or bits.sum() == len(ends)):
            constraint.accept(rng.choice(ends))
            return text, True
        bits[ends] = False
        ids = np.flatnonzero(bits)
        some = [int(ids[rng.randrange(len(ids))]) for _ in range(rng.choice([1, 1, 4]))]
        token = min(some, key=lambda i: len(tokenizer.token_bytes(i)))
        constraint.accept(token)
        text += tokenizer.token_bytes(token)
    return text, False


def takes(schema: Any, text: str) -> bool:
    """Whether an output may be ``text`` under a schema."""
    matcher = LLMatcher(_BYTES, LLMatcher.grammar_from_json_schema(library_schema(schema)), log_level=0)
    tokens = list(text.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and bool(matcher.is_accepting())


def json_value(text: str | bytes) -> Any:
    """A JSON text, with numbers beyond the range of floats (which a schema allows) as the largest of them: validators
    compute with them."""
    return json.loads(text, parse_float=lambda number: max(-1e300, min(1e300, float(number))))
