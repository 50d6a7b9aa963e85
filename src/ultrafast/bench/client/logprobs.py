"""Log-probabilities in the events of an answer, in each API's form."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from ultrafast.bench.client.answer import UNREADABLE
from ultrafast.bench.client.call import TokenChance

_LEAST = -9999.0  # what APIs say for a token that cannot be


class _Entry(Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _Chosen(_Entry):
    top_logprobs: list[_Entry] | None = None


class _Columns(Struct):
    content: list[_Chosen] | None = None  # of Chat Completions
    tokens: list[str] | None = None  # of Completions, as the rest
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


_FORMS = msgspec.json.Decoder(list[_Chosen] | _Columns | None)


def chances_of(raw: msgspec.Raw) -> list[TokenChance]:
    """The tokens in a ``logprobs`` field of any API; none where it is empty, or in a form that we do not know."""
    if not bytes(raw):
        return []
    try:
        form = _FORMS.decode(raw)
    except UNREADABLE:
        return []
    if isinstance(form, list):  # of Responses
        return [_chance(item) for item in form]
    if form is None:
        return []
    return [_chance(item) for item in form.content or ()] or list(_columns(form))


def _chance(item: _Chosen) -> TokenChance:
    top = {_name(entry): max(entry.logprob, _LEAST) for entry in item.top_logprobs or ()}
    return TokenChance(_name(item), max(item.logprob, _LEAST), top)


def _name(entry: _Entry) -> str:
    """Part of a character has bytes, but no text of its own."""
    if entry.bytes and "\ufffd" in entry.token and all(0 <= byte < 256 for byte in entry.bytes):
        return bytes(entry.bytes).decode(errors="backslashreplace")
    return entry.token


def _columns(form: _Columns) -> Iterator[TokenChance]:
    tokens = form.tokens or ()
    tops = form.top_logprobs or [None] * len(tokens)
    for token, logprob, top in zip(tokens, form.token_logprobs or (), tops, strict=False):
        if logprob is not None and math.isfinite(logprob):
            yield TokenChance(token, max(logprob, _LEAST), top or {})
