"""The vocabulary of a model file: read from GGUF metadata, checked, and inverted to bytes.

Two kinds exist in the files we load. ``gpt2`` vocabularies (byte-level BPE) spell every byte as one printable
character and list their merges. ``llama`` vocabularies (SentencePiece) spell text directly with ``▁`` for a space, have
``<0xNN>`` tokens for the bytes of what no token covers, and give each token a score in place of merges.

A vocabulary has tens of thousands of entries, so each check looks at the whole list at once, and finds the index at
fault only when there is one.
"""

from __future__ import annotations

import math
import re
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Any, NoReturn

from ultrafast.errors import ModelFileError

SPACE = "▁"  # how SentencePiece spells a space
_MAX_TOKEN_CHARS = 1024  # the longest token of a real vocabulary is about a quarter of this
_MAX_TOTAL_CHARS = 1 << 24  # bounds the work of deriving merges; real vocabularies have 2 M characters
_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
_END_IDS = ("eos_token_id", "eot_token_id", "eom_token_id")
_END_MARKERS = frozenset(
    [
        *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end|>", "<|end_of_text|>", "<|end_of_turn|>"),
        *(
            "<end_of_turn>",
            "<end_of_utterance>",
            "<｜end▁of▁sentence｜>",
            "<|return|>",
            "<|eot|>",
            "<EOT>",
            "<eos>",
            "</s>",
        ),
    ]
)


class TokenType(IntEnum):
    """``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3  # a marker such as <|im_end|>: parsed from text, produces none
    USER_DEFINED = 4  # parsed whole from text, produces its own text
    UNUSED = 5
    BYTE = 6  # <0xNN>


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A checked vocabulary. Lists are indexed by token id."""

    kind: str  # "gpt2" or "llama"
    pre: str  # name of the pre-tokenizer, "gpt2" kind only
    tokens: list[str]
    types: list[int]
    token_bytes: list[bytes]  # what each token stands for; a marker's own text for control tokens
    merges: list[tuple[str, str]]  # best first
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    pad_id: int | None
    eog_ids: frozenset[int]  # every token that ends generation
    add_bos: bool | None  # None: the file does not say
    add_space_prefix: bool | None

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], path: str) -> Vocabulary:
        """Read and check ``tokenizer.ggml.*``; ModelFileError names the key and index at fault."""
        return _Reader(metadata, path).read()


class _Reader:
    def __init__(self, metadata: Mapping[str, Any], path: str) -> None:
        self.metadata = metadata
        self.path = path

    def read(self) -> Vocabulary:
        kind = self.scalar("model", str)
        if kind not in ("gpt2", "llama"):
            self.fail("model", f"is {kind!r}; supported are 'gpt2' (byte-level BPE) and 'llama' (SentencePiece)")
        tokens = self.tokens()
        types = self.types(len(tokens), required=kind == "llama")
        bos_id = self.token_id("bos_token_id", len(tokens))
        ends = {token_id for key in _END_IDS if (token_id := self.token_id(key, len(tokens))) is not None}
        # Files made from fine-tunes often type these as ordinary tokens; what they are named to be decides.
        for token_id in ends | ({bos_id} if bos_id is not None else set()):
            types[token_id] = TokenType.CONTROL
        ends |= {i for i, token in enumerate(tokens) if token in _END_MARKERS and types[i] == TokenType.CONTROL}
        unk_id = self.token_id("unknown_token_id", len(tokens))
        return Vocabulary(
            kind=kind,
            pre=self.scalar("pre", str, "default"),
            tokens=tokens,
            types=types,
            token_bytes=self.token_bytes(kind, tokens, types, unk_id),
            merges=self.listed_merges(tokens) if kind == "gpt2" else self.scored_merges(tokens, types),
            bos_id=bos_id,
            eos_id=self.token_id("eos_token_id", len(tokens)),
            unk_id=unk_id,
            pad_id=self.token_id("padding_token_id", len(tokens)),
            eog_ids=frozenset(ends),
            add_bos=self.scalar("add_bos_token", bool, None),
            add_space_prefix=self.scalar("add_space_prefix", bool, None),
        )

    def fail(self, key: str, problem: str, index: int | None = None) -> NoReturn:
        place = f"tokenizer.ggml.{key}" + ("" if index is None else f"[{index}]")
        raise ModelFileError(self.path, f"{place} {problem}")

    def scalar(self, key: str, kind: type, *default: Any) -> Any:
        value = self.metadata.get(f"tokenizer.ggml.{key}")
        if value is None and default:
            return default[0]
        if type(value) is not kind:
            self.fail(key, "is missing" if value is None else f"must be {_NAMES[kind]}, not {type(value).__name__}")
        return value

    def array(self, key: str, *kinds: type) -> list[Any]:
        values: list[Any] = self.scalar(key, list)
        if not {*map(type, values)} <= {*kinds}:
            index = next(i for i, value in enumerate(values) if type(value) not in kinds)
            self.fail(key, f"must be {_NAMES[kinds[0]]}, not {type(values[index]).__name__}", index)
        return values

    def token_id(self, key: str, num_tokens: int) -> int | None:
        token_id: int | None = self.scalar(key, int, None)
        if token_id is not None and not 0 <= token_id < num_tokens:
            self.fail(key, f"is {token_id}, outside the vocabulary of {num_tokens} tokens")
        return token_id

    def tokens(self) -> list[str]:
        tokens = self.array("tokens", str)
        if not tokens:
            self.fail("tokens", "is empty")
        lengths = [*map(len, tokens)]
        if min(lengths) == 0 or max(lengths) > _MAX_TOKEN_CHARS:
            index = next(i for i, length in enumerate(lengths) if not 0 < length <= _MAX_TOKEN_CHARS)
            self.fail("tokens", f"has {lengths[index]} characters; 1 to {_MAX_TOKEN_CHARS} are allowed", index)
        if sum(lengths) > _MAX_TOTAL_CHARS:
            self.fail("tokens", f"has {sum(lengths)} characters in all; at most {_MAX_TOTAL_CHARS} are allowed")
        if len(ids := {token: i for i, token in enumerate(tokens)}) < len(tokens):
            index = next(i for i, token in enumerate(tokens) if ids[token] != i)
            self.fail("tokens", f"repeats tokens[{index}], {tokens[index]!r}", ids[tokens[index]])
        try:
            "".join(tokens).encode()
        except UnicodeEncodeError as error:
            index = _containing(tokens, error.start)
            self.fail("tokens", f"({tokens[index]!r}) is not valid UTF-8", index)
        return tokens

    def types(self, num_tokens: int, *, required: bool) -> list[int]:
        if not required and "tokenizer.ggml.token_type" not in self.metadata:
            return [TokenType.NORMAL] * num_tokens
        types = self.array("token_type", int)
        self.same_length("token_type", types, num_tokens)
        if not {*types} <= {*TokenType}:
            index = next(i for i, kind in enumerate(types) if kind not in {*TokenType})
            self.fail("token_type", f"is {types[index]}; 1 to 6 are defined", index)
        return [*types]

    def same_length(self, key: str, values: list[Any], num_tokens: int) -> None:
        if len(values) != num_tokens:
            self.fail(key, f"has {len(values)} entries, but there are {num_tokens} tokens")

    def token_bytes(self, kind: str, tokens: list[str], types: list[int], unk_id: int | None) -> list[bytes]:
        normal = [i for i, token_type in enumerate(types) if token_type == TokenType.NORMAL]
        result = [token.encode() for token in tokens]
        if kind == "gpt2":
            self.invert_byte_level(tokens, normal, result)
            return result
        for i in normal:
            result[i] = result[i].replace(SPACE.encode(), b" ")
        missing = {*range(256)}
        for i, token in enumerate(tokens):
            if types[i] == TokenType.BYTE:
                match = _BYTE_TOKEN.fullmatch(token)
                if match is None:
                    self.fail("tokens", f"({token!r}) is typed as a byte, but is not of the form <0x00> to <0xFF>", i)
                result[i] = bytes.fromhex(match[1])
                missing.discard(result[i][0])
        if missing and unk_id is None:
            self.fail("tokens", f"lacks the byte token <0x{min(missing):02X}>, and no unknown token is set")
        return result

    def invert_byte_level(self, tokens: list[str], normal: list[int], result: list[bytes]) -> None:
        spelled = [tokens[i] for i in normal]
        try:
            inverted = "".join(spelled).translate(_BYTE_LEVEL).encode("latin-1")
        except UnicodeEncodeError as error:
            index = normal[_containing(spelled, error.start)]
            self.fail("tokens", f"({tokens[index]!r}) has a character outside the byte-level alphabet", index)
        position = 0
        for i in normal:  # one character is one byte
            result[i] = inverted[position : (position := position + len(tokens[i]))]

    def listed_merges(self, tokens: list[str]) -> list[tuple[str, str]]:
        if "tokenizer.ggml.merges" not in self.metadata:
            return []  # writers leave an empty list out: every character is a token of its own
        known = set(tokens)
        merges: dict[tuple[str, str], None] = {}  # of a repeated merge, the first (better) rank counts
        for i, merge in enumerate(self.array("merges", str)):
            left, _, right = merge.partition(" ")
            if left not in known or right not in known or left + right not in known:
                self.fail("merges", f"({merge!r:.200}) needs two tokens of the vocabulary that join to a third", i)
            merges[left, right] = None
        return list(merges)

    def scored_merges(self, tokens: list[str], types: list[int]) -> list[tuple[str, str]]:
        """SentencePiece joins the pair whose union scores best; so every way to cut a token in two is a merge, ranked
        by the score of the whole, then longer left part first (the order Hugging Face's converter uses)."""
        scores = self.array("scores", float, int)
        self.same_length("scores", scores, len(tokens))
        known = {token for token, kind in zip(tokens, types, strict=True) if kind == TokenType.NORMAL}
        ranked = []
        for i, (token, score) in enumerate(zip(tokens, scores, strict=True)):
            if not math.isfinite(score):
                self.fail("scores", f"is {score}; it must be finite", i)
            if token in known:
                for cut in range(1, len(token)):
                    if token[:cut] in known and token[cut:] in known:
                        ranked.append((-score, -cut, i, token[:cut], token[cut:]))
        ranked.sort()
        return [(left, right) for *_, left, right in ranked]


_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false", list: "an array"}


def byte_level_alphabet() -> dict[int, str]:
    """Byte → the character that GPT-2's byte-level BPE spells it with: itself if printable, else one from U+0100 up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}


# For str.translate: alphabet character → the character with the byte's number; other Latin-1 characters → one beyond.
_BYTE_LEVEL = dict.fromkeys(range(256), "\uffff") | {
    ord(char): chr(byte) for byte, char in byte_level_alphabet().items()
}


def _containing(tokens: list[str], position: int) -> int:
    """Index of the token that holds character ``position`` of their concatenation."""
    return bisect(list(accumulate(map(len, tokens))), position)
