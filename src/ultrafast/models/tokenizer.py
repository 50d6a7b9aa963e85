"""Text to token ids and back, from a model file's metadata alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import tokenizers
from tokenizers import AddedToken, models, normalizers

from ultrafast.errors import ModelFileError, RequestError
from ultrafast.models.pretokenizers import PRE_TOKENIZERS
from ultrafast.models.template import ChatTemplate
from ultrafast.models.vocabulary import SPACE, TokenType, Vocabulary
from ultrafast.types import Message


class Tokenizer:
    """The tokenizer of one model file. Immutable, so threads may share it.

    Byte-level BPE vocabularies give the ids of the model's own Hugging Face tokenizer. SentencePiece vocabularies
    follow llama.cpp: where the file asks for a space prefix (the default), text gets one at its start and after every
    special token, and decoding drops one leading space.
    """

    def __init__(self, vocabulary: Vocabulary, template: str | None = None, path: str = "") -> None:
        self._bytes = vocabulary.token_bytes
        self._special = frozenset(
            i for i, kind in enumerate(vocabulary.types) if kind in (TokenType.CONTROL, TokenType.UNKNOWN)
        )
        self.vocab_size = len(vocabulary.tokens)
        self.longest_token = max(map(len, vocabulary.token_bytes))  # bytes
        self.bos_id = vocabulary.bos_id
        self.eos_id = vocabulary.eos_id
        self.unk_id = vocabulary.unk_id
        self.pad_id = vocabulary.pad_id
        self.eog_ids = vocabulary.eog_ids
        if vocabulary.kind == "gpt2":
            self.strips_leading_space = False
            self._backend, add_bos = _byte_level(vocabulary, path)
        else:
            self.strips_leading_space = vocabulary.add_space_prefix is not False
            self._backend, add_bos = _sentencepiece(vocabulary), True
        named = {"bos": self.bos_id, "eos": self.eos_id, "unk": self.unk_id, "pad": self.pad_id}
        self.chat_template = template
        self._template = ChatTemplate(
            template, {f"{name}_token": vocabulary.tokens[i] for name, i in named.items() if i is not None}
        )
        if vocabulary.add_bos and self.bos_id is None:
            raise ModelFileError(path, "tokenizer.ggml.add_bos_token is true, but bos_token_id is missing")
        self.add_bos = self.bos_id is not None and (add_bos if vocabulary.add_bos is None else vocabulary.add_bos)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], path: str = "") -> Self:
        """Build from the ``tokenizer.*`` keys of a GGUF file; ``path`` is for messages.

        Raises:
            ModelFileError: naming the key, and the index where there is one.
        """
        template = metadata.get("tokenizer.chat_template")
        if template is not None and not isinstance(template, str):
            raise ModelFileError(path, f"tokenizer.chat_template must be a string, not {type(template).__name__}")
        return cls(Vocabulary.from_gguf(metadata, path), template, path)

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``. Special tokens in the text are parsed, wherever the text came from; nothing is added.

        Characters that the vocabulary cannot spell (a few control characters in some) become its unknown token, or
        nothing where it has none.

        Raises:
            RequestError: the text has a lone surrogate, which no UTF-8 can carry.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"text has a lone surrogate (U+{ord(text[error.start]):04X}) at position {error.start}; "
                "send valid Unicode"
            ) from None
        # A batch of one: unlike the plain call it lets other Python threads run meanwhile, and it keeps no offsets.
        ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """Text of ``ids``; bytes that are not UTF-8 become U+FFFD. ``skip_special`` leaves out control tokens."""
        kept = (i for i in ids if not (skip_special and i in self._special))
        text = b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")
        return text.removeprefix(" ") if self.strips_leading_space else text

    def token_bytes(self, id: int) -> bytes:
        """The exact bytes that a token stands for: its marker's text for a control token, one byte for ``<0xNN>``."""
        if not 0 <= id < self.vocab_size:
            raise RequestError(f"token id {id} is outside the vocabulary (0 to {self.vocab_size - 1})")
        return self._bytes[id]

    def is_special(self, id: int) -> bool:
        """Whether the token is a control token (or the unknown one), which gives no text in an answer."""
        return id in self._special

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt text for ``messages``, by the model's own template.

        Text in a message that spells a special token becomes that token when the prompt is encoded, as everywhere.

        Raises:
            TemplateError: see `ChatTemplate.render`.
        """
        return self._template.render(messages, tools=tools, add_generation_prompt=add_generation_prompt)


def _byte_level(vocabulary: Vocabulary, path: str) -> tuple[tokenizers.Tokenizer, bool]:
    """The library's tokenizer, and whether BOS is added when the file does not say."""
    spec = PRE_TOKENIZERS.get(vocabulary.pre)
    if spec is None:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise ModelFileError(path, f"tokenizer.ggml.pre is {vocabulary.pre!r}; supported are {known}")
    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    backend = tokenizers.Tokenizer(models.BPE(ids, vocabulary.merges, ignore_merges=spec.ignore_merges))
    backend.pre_tokenizer = spec.build()
    if spec.nfc:
        backend.normalizer = normalizers.NFC()
    _add_markers(backend, vocabulary)
    return backend, spec.add_bos


def _sentencepiece(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    unknown = None if vocabulary.unk_id is None else vocabulary.tokens[vocabulary.unk_id]
    backend = tokenizers.Tokenizer(
        models.BPE(ids, vocabulary.merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    # The library normalises each stretch between markers by itself, so the prefix also follows every marker.
    prefix = [] if vocabulary.add_space_prefix is False else [normalizers.Prepend(SPACE)]
    backend.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
    _add_markers(backend, vocabulary)
    return backend


def _add_markers(backend: tokenizers.Tokenizer, vocabulary: Vocabulary) -> None:
    """Have control, unknown and user-defined tokens matched whole, before anything else looks at the text."""
    markers = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
    backend.add_tokens(
        [
            AddedToken(token, normalized=False, special=kind != TokenType.USER_DEFINED)
            for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
            if kind in markers
        ]
    )
