"""Tokens by a tokenizer of the user's choice, so that speeds of different models are in one unit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from ultrafast.errors import ConfigError


@cache
def counter(path: Path) -> Callable[[str], int]:
    """How many tokens a text has, by a ``tokenizer.json``.

    Raises:
        ConfigError: it is none.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more precise
        raise ConfigError(f"--tokenizer {path}: no tokenizer.json: {error}") from None
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
