"""Prompts: stories to write, and nonsense of a given number of tokens that nobody has sent before."""

from __future__ import annotations

from pathlib import Path
from random import Random

from ultrafast.models.gguf import GgufFile
from ultrafast.models.tokenizer import Tokenizer

Messages = list[dict[str, str]]

_TOPICS = ("harbours", "mountains", "libraries", "orchards", "lighthouses", "railways", "gardens", "bridges")


class Words:
    """Of the vocabulary in a model file.

    Attributes:
        never_ending: a ``logit_bias`` without which a small model might end after a few words.
    """

    def __init__(self, model: Path) -> None:
        with GgufFile(model) as file:
            self.tokenizer = Tokenizer.from_gguf(file.metadata, str(model))
        self.never_ending = {str(token): -100 for token in self.tokenizer.eog_ids}
        spelled = (self.tokenizer.token_bytes(token) for token in range(self.tokenizer.vocab_size))
        self._words = [word.decode() for word in spelled if len(word) > 3 and word[:1] == b" " and _is_plain(word[1:])]

    def nonsense(self, rng: Random, tokens: int) -> str:
        """Random words, each a token of its own."""
        return "".join(rng.choices(self._words, k=tokens)).lstrip()

    def story(self, rng: Random) -> Messages:
        """Ask for a text that goes on for long."""
        return said(f"Write a very long story about {rng.randrange(1000)} {rng.choice(_TOPICS)}.")


def said(text: str) -> Messages:
    """One message of a user."""
    return [{"role": "user", "content": text}]


def _is_plain(word: bytes) -> bool:
    return word.isalpha() and word.islower()
