"""Prompts as text, messages and token ids, and those that are hopelessly long."""

import numpy as np
import pytest

from support.engines import OpenEngine
from ultrafast.errors import PromptTooLong, RequestError


def test_hopeless_prompts_are_refused_before_they_are_tokenised(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(chat_template="{% for m in messages %}{{ m.content }}{% endfor %}")

    def never(text: str) -> list[int]:
        raise AssertionError("tokenised")

    monkeypatch.setattr(engine.tokenizer, "encode", never)
    text = "a" * (engine.max_context * engine.tokenizer.longest_token)
    message = {"role": "user", "content": text}
    for prompt in (text, [message], [message] * 3, [{"role": "user", "content": "a"}] * (engine.max_context + 1)):
        with pytest.raises(PromptTooLong, match=str(engine.max_context)) as refusal:
            engine.encode_prompt(prompt)
        assert refusal.value.code == "context_length_exceeded"


def test_prompts_that_may_fit_are_tokenised(open_engine: OpenEngine) -> None:
    engine = open_engine()
    text = "a" * (engine.max_context * engine.tokenizer.longest_token - 1)
    assert engine.encode_prompt(text) == engine.tokenizer.encode(text)


def test_arrays_of_ids_are_ids(open_engine: OpenEngine) -> None:
    engine = open_engine()
    assert engine.encode_prompt(np.array([1, 2, 3])) == [1, 2, 3]
    for prompt in ([1, True], [1, "a"], [{}, 1], np.array([1.0]), None, b"ab", 5):
        with pytest.raises(RequestError, match="a prompt is"):
            engine.encode_prompt(prompt)
