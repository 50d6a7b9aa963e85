"""What an output may be: grammars compiled once, within limits, and asked which tokens may come next.

llguidance does the work. It is imported, and given the vocabulary, with the first grammar: a server that is never asked
for one starts as fast and stays as small as without it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from ultrafast.errors import RequestError
from ultrafast.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_TEXT = 1 << 20  # characters of one grammar
_KEPT = 64  # compiled grammars
_KEPT_TEXT = 4 << 20  # characters of those
_MAX_REASON = 300  # characters of what the library says
_MAX_ROW = 8000  # ways to go on at one point: the library's 2000 allow 500 optional properties of an object
_MAX_LEXER_STATES = 50_000  # 1 to 2 kB each: a regular expression that explodes is stopped at 100 MB, not at 500


class Grammars:
    """The grammars of one vocabulary. Threads may share it.

    The library bounds the size of a grammar and the work for each mask: what would take long is an error.

    Args:
        tokenizer: of the model.
        vocab_size: tokens that the model has logits for; default: as many as the tokenizer knows.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int | None = None) -> None:
        self._vocabulary = _Vocabulary(tokenizer, vocab_size or tokenizer.vocab_size)
        self._kept: OrderedDict[str, _Compiled] = OrderedDict()
        self._lock = threading.Lock()

    def prepare(self, text: str) -> None:
        """Compile a grammar, unless it is known already. Takes a millisecond for most, and up to a few seconds at the
        limits; other threads run meanwhile.

        Args:
            text: a Lark grammar, or llguidance's JSON form.

        Raises:
            RequestError: it cannot be compiled, nothing satisfies it, or it exceeds a limit; ``param`` is ``grammar``.
        """
        self._compiled(text)

    def constraint(self, text: str) -> Constraint:
        """A fresh state of a grammar, which is compiled first if need be.

        Raises:
            RequestError: as `prepare` does.
        """
        return Constraint(self._compiled(text).deep_copy(), self._vocabulary.mask_bytes)

    def _compiled(self, text: str) -> LLMatcher:
        if len(text) > MAX_TEXT:
            raise _refusal(f"it has {len(text)} characters, and {MAX_TEXT} are allowed")
        with self._lock:
            compiled = self._kept.setdefault(text, _Compiled(text))
            self._kept.move_to_end(text)
            while len(self._kept) > _KEPT or sum(map(len, self._kept)) > _KEPT_TEXT:
                self._kept.popitem(last=False)
        return compiled.matcher(self._vocabulary)


class Constraint:
    """Where one output is in its grammar. For one thread at a time.

    Args:
        matcher: of its own.
        mask_bytes: size of a mask.
    """

    def __init__(self, matcher: LLMatcher, mask_bytes: int) -> None:
        self._matcher = matcher
        self._mask_bytes = mask_bytes

    def mask_into(self, pointer: int) -> None:
        """Write which tokens may come next.

        Where the text may end, tokens that end generation are among them, and no others where it must. Control tokens
        are never part of the text.

        Args:
            pointer: address of uint32 words, one bit a token of the model's vocabulary, lowest first.

        Raises:
            RequestError: to go on takes more work than the limits allow, or nothing can come next.
        """
        self._matcher.unsafe_compute_mask_ptr(pointer, self._mask_bytes)
        self._check()

    def accept(self, token: int) -> None:
        """Go on with ``token``, one that the mask allowed.

        Raises:
            RequestError: it did not, or see `mask_into`.
        """
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise _refusal(_plain(self._matcher.get_error()), param=None)  # an answer has begun: nobody renames fields


class _Compiled:
    """A grammar, compiled by the first thread that asks for it; why not, if it could not be."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lock = threading.Lock()
        self._matcher: LLMatcher | None = None
        self._problem = ""

    def matcher(self, vocabulary: _Vocabulary) -> LLMatcher:
        with self._lock:
            if self._matcher is None and not self._problem:
                matcher = vocabulary.compile(self._text)
                self._problem = _plain(matcher.get_error())
                self._matcher = None if self._problem else matcher
        if self._matcher is None:
            raise _refusal(self._problem)
        return self._matcher


class _Vocabulary:
    """The tokens, as the library wants them."""

    is_tokenizer_wrapper = True  # the library's mark of what has the next four
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        self._tokenizer = tokenizer
        self._size = size
        self._lock = threading.Lock()
        self._library_form: LLTokenizer | None = None
        self.mask_bytes = (size + 31) // 32 * 4

    @property
    def tokens(self) -> list[bytes]:
        tokens = [self._tokenizer.token_bytes(i) for i in range(self._tokenizer.vocab_size)]
        return tokens + [b""] * (self._size - len(tokens))

    @property
    def special_token_ids(self) -> list[int]:
        return [i for i in range(self._tokenizer.vocab_size) if self._tokenizer.is_special(i)]

    @property
    def eos_token_id(self) -> int:
        return min(self._tokenizer.eog_ids)

    def __call__(self, text: str) -> list[int]:
        """The tokens of text that is the only one possible: no others are then allowed, as none else would come of
        encoding it. Text that spells a control token is still text. The library asks before each token, and looks at
        the next one alone, so what lies far ahead is left out."""
        assert self._library_form is not None
        text = text[: max(256, 4 * self._tokenizer.longest_token)]
        lead = "\n" if self._tokenizer.strips_leading_space else ""  # keeps away the space that encoding puts first
        ids = self._tokenizer.encode(lead + text)[2 * len(lead) :]
        spelled = b"".join(map(self._tokenizer.token_bytes, ids))
        if spelled != text.encode() or any(map(self._tokenizer.is_special, ids)):
            return self._library_form.greedy_tokenize(text)
        return ids

    def compile(self, text: str) -> LLMatcher:
        """A matcher, in error if there is no such grammar."""
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(max_items_in_row=_MAX_ROW, max_lexer_states=_MAX_LEXER_STATES, verbose_errors=False)
        matcher = LLMatcher(self._for_library(), text, log_level=0, limits=limits)
        matcher.compute_bitmask()  # what fails at once fails here; the matcher keeps what the first mask has cost
        return matcher

    def _for_library(self) -> LLTokenizer:
        from llguidance import LLTokenizer

        with self._lock:
            if self._library_form is None:
                ends = sorted(self._tokenizer.eog_ids)
                if not ends:
                    raise _refusal(
                        "this model has no token that ends an answer, and so cannot tell when it is complete"
                    )
                self._library_form = LLTokenizer(self, eos_token=ends)  # type: ignore[arg-type]
            return self._library_form


def _plain(error: str) -> str:
    """What the library says, on one line without what is for its authors."""
    if error.startswith("NoExtension"):
        return "nothing satisfies it"
    return " ".join(error.replace("<non-verbose/>", "").split())[:_MAX_REASON]


def _refusal(reason: str, param: str | None = "grammar") -> RequestError:
    return RequestError(f"the form asked for cannot be guaranteed: {reason}", param=param, code="invalid_value")
