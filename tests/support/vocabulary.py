"""Small vocabularies as GGUF metadata: byte-level BPE and SentencePiece style."""

from __future__ import annotations

from typing import Any

NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# Each pair is (left, right); both halves are a character or the product of an earlier pair.
MERGES = [
    (" ", "t"), ("h", "e"), (" t", "he"), ("i", "n"), ("e", "r"), (" ", "a"), ("o", "n"), ("r", "e"), (" ", "s"),
    ("a", "t"), ("e", "n"), ("o", "r"), (" ", "w"), ("l", "l"), ("o", "u"), ("in", "g"), (" a", "n"), (" an", "d"),
    ("e", "ll"), ("h", "ell"), ("hell", "o"), (" w", "or"), ("l", "d"), (" wor", "ld"), ("i", "s"), (" ", "is"),
    ("1", "2"), ("12", "3"), ("h", "at"),
]  # fmt: skip


def bpe_metadata(size: int | None = None) -> dict[str, Any]:
    """Byte-level BPE in the layout of SmolLM2: three control tokens, 256 bytes, merges, then unused padding."""
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    pairs = [(_printable(left), _printable(right)) for left, right in MERGES]
    tokens = control + [_PRINTABLE[byte] for byte in range(256)] + [left + right for left, right in pairs]
    padding = _padding(tokens, size)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens + padding,
        "tokenizer.ggml.token_type": [CONTROL] * 3 + [NORMAL] * (len(tokens) - 3) + [UNUSED] * len(padding),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in pairs],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }


def spm_metadata(size: int | None = None) -> dict[str, Any]:
    """SentencePiece style, as Llama 2 has it: <unk> <s> </s>, 256 byte tokens, then pieces with falling scores."""
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    merged = [(left + right).replace(" ", "▁") for left, right in MERGES]
    pieces = merged + ["▁"] + [chr(code) for code in range(33, 127)]
    padding = _padding(special + pieces, size)
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces) + [UNUSED] * len(padding)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": special + pieces + padding,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(rank) for rank in range(len(pieces))] + [0.0] * len(padding),
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
    }


def _padding(tokens: list[str], size: int | None) -> list[str]:
    """Unused tokens up to ``size``, or up to the next multiple of 32."""
    size = -(-len(tokens) // 32) * 32 if size is None else size
    if size < len(tokens):
        raise ValueError(f"the vocabulary needs at least {len(tokens)} tokens")
    return [f"<|unused_{index}|>" for index in range(size - len(tokens))]


def _printable_bytes() -> list[str]:
    """The characters that stand for the 256 bytes in byte-level BPE (GPT-2)."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(256 + hidden.index(byte)) for byte in range(256)]


_PRINTABLE = _printable_bytes()


def _printable(text: str) -> str:
    return "".join(_PRINTABLE[byte] for byte in text.encode())
