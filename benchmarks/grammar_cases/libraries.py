"""Libraries for constrained decoding, behind what the measurements need of them."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from typing import Any, Protocol

from ultrafast.chat.schema import library_schema
from ultrafast.engine.grammar import Grammars
from ultrafast.models.tokenizer import Tokenizer


class State(Protocol):
    """Where one text is in its grammar."""

    def mask(self) -> None:
        """Compute which tokens may come next."""

    def allows(self, token: int) -> bool:
        """Whether the last mask has the token."""

    def accept(self, token: int) -> None:
        """Go on with a token."""


class OurState:
    """A state of `engine.grammar`."""

    def __init__(self, grammars: Grammars, grammar: str, vocab_size: int) -> None:
        self._constraint = grammars.constraint(grammar)
        self._words = (ctypes.c_uint32 * ((vocab_size + 31) // 32))()
        self._address = ctypes.addressof(self._words)

    def mask(self) -> None:
        self._constraint.mask_into(self._address)

    def allows(self, token: int) -> bool:
        return bool(self._words[token // 32] >> token % 32 & 1)

    def accept(self, token: int) -> None:
        self._constraint.accept(token)


class Llguidance:
    """The library that we use, through our own code."""

    name = "llguidance"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._grammars = Grammars(tokenizer)
        self._vocab_size = tokenizer.vocab_size

    def compile(self, schema: Any) -> Callable[[], State]:
        """Maker of states; ValueError or RequestError: refused."""
        grammar = f"start: json\njson: %json {library_schema(schema)}"
        self._grammars.prepare(grammar)
        return lambda: OurState(self._grammars, grammar, self._vocab_size)


class XgrammarState:
    """A state of xgrammar."""

    def __init__(self, matcher: Any, bitmask: Any) -> None:
        self._matcher, self._bitmask = matcher, bitmask
        self._words = (ctypes.c_uint32 * bitmask.shape[1]).from_address(bitmask.data_ptr())

    def mask(self) -> None:
        if not self._matcher.fill_next_token_bitmask(self._bitmask):
            self._bitmask.fill_(-1)  # it says so where all are allowed

    def allows(self, token: int) -> bool:
        return bool(self._words[token // 32] >> token % 32 & 1)

    def accept(self, token: int) -> None:
        if not self._matcher.accept_token(token):
            raise ValueError("not accepted")


class Xgrammar:
    """The other library, as its documentation says; the same separators."""

    name = "xgrammar"

    def __init__(self, tokenizer: Tokenizer) -> None:
        import xgrammar

        tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        tokens = [b"" if tokenizer.is_special(i) else token for i, token in enumerate(tokens)]
        info = xgrammar.TokenizerInfo(
            tokens, xgrammar.VocabType.RAW, stop_token_ids=sorted(tokenizer.eog_ids), add_prefix_space=False
        )
        self._library = xgrammar
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=2, cache_enabled=False)
        self._vocab_size = tokenizer.vocab_size

    def compile(self, schema: Any) -> Callable[[], State]:
        """Maker of states; RuntimeError: refused."""
        compiled = self._compiler.compile_json_schema(
            json.dumps(schema), any_whitespace=False, separators=(", ", ": "), strict_mode=False
        )
        return lambda: XgrammarState(
            self._library.GrammarMatcher(compiled), self._library.allocate_token_bitmask(1, self._vocab_size)
        )


def libraries(tokenizer: Tokenizer) -> list[Llguidance | Xgrammar]:
    """Those that are installed."""
    try:
        return [Llguidance(tokenizer), Xgrammar(tokenizer)]
    except ImportError:
        return [Llguidance(tokenizer)]
