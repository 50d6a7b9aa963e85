"""Prompts of a wanted length in tokens, each of them different from its first words on.

No tokenizer is at hand for what a far endpoint serves. Two calls tell from the usage that it states how many tokens
its template adds, and how many characters of such text make one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from random import Random

from ultrafast.bench.load.material import PIECES, SEPARATOR, TASK, Category
from ultrafast.traces import BLOCK_TOKENS

CHARACTERS_PER_TOKEN = 4.0  # of English, where nothing better is known
_POOL = 1024  # pieces made once a category: picking from them is quick enough for between two calls


@dataclass(frozen=True, slots=True)
class Gauge:
    """What makes the length of a prompt at one endpoint.

    Attributes:
        characters: of text a token.
        overhead: tokens that the endpoint adds to each prompt.
        is_measured: whether by its own counts; otherwise lengths are a guess.
    """

    characters: float = CHARACTERS_PER_TOKEN
    overhead: float = 0.0
    is_measured: bool = False

    @classmethod
    def of(cls, shorter: tuple[int, int], longer: tuple[int, int]) -> Gauge:
        """From two prompts: characters, and tokens as the endpoint counted them."""
        (characters, tokens), (more_characters, more_tokens) = shorter, longer
        if more_tokens <= tokens or more_characters <= characters:
            return cls()
        ratio = (more_characters - characters) / (more_tokens - tokens)
        return cls(ratio, max(0.0, tokens - characters / ratio), True)

    def length(self, tokens: int) -> int:
        """Characters for a prompt of so many tokens in all."""
        return max(1, round((tokens - self.overhead) * self.characters))


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes prompts; the same seed and number give the same one, in any process.

    Args:
        shared_tokens: what every prompt begins with in common, for prefix caches to find.
    """

    category: Category
    gauge: Gauge
    seed: int = 0
    shared_tokens: int = 0

    def prompt(self, number: int, tokens: int, blocks: Sequence[int] = ()) -> str:
        """The prompt with that number, in about so many tokens; never so few that it would not differ from others.

        Args:
            blocks: of a trace; equal ones give equal text (`traces.TraceCall`).
        """
        end = f"\n\n{TASK[self.category]}"
        # A name in front, of the same length for all: prompts differ before any block of a prefix cache is full.
        name = f"Case {_name(self.seed, number)}. "
        length = max(len(name), self.gauge.length(tokens) - len(end))
        shared = self._shared(blocks, tokens)[: length - len(name)]
        own = name + self._text(f"own {number}", length)
        return shared + own[: length - len(shared)] + end

    def _shared(self, blocks: Sequence[int], tokens: int) -> str:
        if not blocks:
            return self._text("shared", round(self.shared_tokens * self.gauge.characters))
        size = round(min(BLOCK_TOKENS, tokens) * self.gauge.characters)
        # The last block is what the prompt ends with: other text, and the task, stand there.
        return "".join(self._text(f"block {block}", size) for block in blocks[:-1])

    def _text(self, purpose: str, characters: int) -> str:
        random = Random(f"{self.seed} {self.category} {purpose}")
        pool, separator = _pool(self.category), SEPARATOR[self.category]
        mean = sum(map(len, pool)) / len(pool) + len(separator)
        text = ""
        while len(text) < characters:
            text += separator.join(random.choices(pool, k=int((characters - len(text)) / mean) + 1)) + separator
        return text[:characters]


def _name(seed: int, number: int) -> str:
    return blake2b(f"{seed} {number}".encode(), digest_size=4).hexdigest()


@cache
def _pool(category: Category) -> tuple[str, ...]:
    random = Random(category)
    return tuple(PIECES[category](random) for _ in range(_POOL))
