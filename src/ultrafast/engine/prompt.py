"""From what a caller gives, text, messages or token ids, to the token ids of the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from ultrafast.errors import PromptTooLong, RequestError
from ultrafast.models.tokenizer import Tokenizer
from ultrafast.types import Message


def encode_prompt(
    tokenizer: Tokenizer, prompt: Any, max_context: int, *, tools: Sequence[Mapping[str, Any]] | None = None
) -> list[int]:
    """Token ids of a prompt; raw text begins with the beginning-of-sequence token where the model file wants one.

    Raises:
        PromptTooLong: the text is so long that it need not be tokenised to know that it does not fit.
        TemplateError: the chat template refuses the messages.
        RequestError: the prompt is none of the three.
    """
    if isinstance(prompt, str):
        _require_room(tokenizer, [prompt], max_context)
        ids = tokenizer.encode(prompt)
        bos = tokenizer.bos_id
        return [bos, *ids] if tokenizer.add_bos and bos is not None and ids[:1] != [bos] else ids
    if isinstance(prompt, Sequence) and prompt and all(isinstance(item, Mapping) for item in prompt):
        return _encode_messages(tokenizer, prompt, max_context, tools)
    return token_ids(prompt)


def token_ids(prompt: Any) -> list[int]:
    """``prompt`` as a list of plain integers, if it is a list or array of integers.

    Raises:
        RequestError: it is not.
    """
    is_list = isinstance(prompt, Sequence | np.ndarray) and not isinstance(prompt, bytes)
    if not is_list or not all(isinstance(item, Integral) and not isinstance(item, bool) for item in prompt):
        raise RequestError("a prompt is a string, a list of messages or a list of token ids", param="prompt")
    return [int(item) for item in prompt]


def _encode_messages(
    tokenizer: Tokenizer, messages: Sequence[Message], max_context: int, tools: Sequence[Mapping[str, Any]] | None
) -> list[int]:
    if len(messages) > max_context:  # a message takes a token at the very least
        raise PromptTooLong(
            f"the prompt has {len(messages)} messages; the context of {max_context} tokens cannot hold them",
            param="prompt",
            tokens=len(messages),
            limit=max_context - 1,
        )
    contents = (message.get("content") for message in messages)
    _require_room(tokenizer, (content for content in contents if isinstance(content, str)), max_context)
    text = tokenizer.apply_chat_template(messages, tools=tools)
    _require_room(tokenizer, [text], max_context)
    return tokenizer.encode(text)


def _require_room(tokenizer: Tokenizer, texts: Iterable[str], max_context: int) -> None:
    """Refuse at once what would take seconds to tokenise only to be refused: a token spells but so many characters."""
    least = sum(map(len, texts)) // tokenizer.longest_token
    if least >= max_context:
        raise PromptTooLong(
            f"the prompt has at least {least} tokens; the context of {max_context} tokens is for prompt and output",
            param="prompt",
            tokens=least,
            limit=max_context - 1,
        )
