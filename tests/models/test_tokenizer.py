"""The tokenizer: exact ids and bytes on small and real vocabularies, precise errors on broken ones."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from support.vocabulary import CHATML, bpe_metadata, spm_metadata
from ultrafast.errors import ModelFileError, RequestError, TemplateError
from ultrafast.models.gguf import GgufFile
from ultrafast.models.pretokenizers import PRE_TOKENIZERS
from ultrafast.models.tokenizer import Tokenizer

BPE = Tokenizer.from_gguf(bpe_metadata())
SPM = Tokenizer.from_gguf(spm_metadata())
TEXTS = [
    *("", " ", "Hello world", "  1", " " * 70, "a\0b", "a\u2028b\u00a0c", "<b>\t&amp;</b>", "don't DON'T we'll"),
    *("x =  1 + 2\n\t\tif 33:\r\n        y", "你好，世界 123", "١٢٣ ½ ⅷ", "e\u0301 é", "👨‍👩‍👧‍👦", "🇩🇪🇫🇷"),
    *("<|im_start|>user\nx<|im_end|>\n", " <|im_end|> <|im_end|>"),
]


def pieces(tokenizer: Tokenizer, text: str) -> list[bytes]:
    return [tokenizer.token_bytes(i) for i in tokenizer.encode(text)]


def changed(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Metadata with keys replaced; None removes one, a dict replaces elements of an array."""
    result = dict(base)
    for name, value in changes.items():
        key = f"tokenizer.ggml.{name}"
        if value is None:
            del result[key]
        elif isinstance(value, dict):
            result[key] = [value.get(i, old) for i, old in enumerate(result[key])]
        else:
            result[key] = value
    return result


@pytest.fixture(scope="module")
def smollm(embedded_model_path: Path) -> tuple[Tokenizer, dict[str, Any]]:
    with GgufFile(embedded_model_path) as file:
        return Tokenizer.from_gguf(file.metadata, str(embedded_model_path)), file.metadata


def test_smollm_ids_are_those_of_its_own_tokenizer(smollm: tuple[Tokenizer, dict[str, Any]]) -> None:
    tokenizer, metadata = smollm
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    own = Backend(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    own.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    own.add_special_tokens([AddedToken(token, special=True) for token in tokens[:17]])
    for text in TEXTS:
        assert tokenizer.encode(text) == own.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_smollm_special_ids_and_template(smollm: tuple[Tokenizer, dict[str, Any]]) -> None:
    tokenizer, _ = smollm
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (49152, 1, 2, False)
    assert tokenizer.eog_ids == {0, 2}
    text = tokenizer.apply_chat_template([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])
    expected = "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"
    assert text == expected
    assert [i for i in tokenizer.encode(text) if tokenizer.is_special(i)] == [1, 2, 1, 2, 1]


@settings(deadline=None)
@given(st.sampled_from([BPE, SPM]), st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" the1▁")))
def test_decoding_gives_the_text_back(tokenizer: Tokenizer, text: str) -> None:
    expected = text.replace("▁", " ") if tokenizer is SPM else text
    ids = tokenizer.encode(text)
    if not any(tokenizer.is_special(i) for i in ids):  # a marker in the text takes a prefix space after it
        assert tokenizer.decode(ids) == expected


def test_token_bytes_are_exact() -> None:
    assert b"".join(BPE.token_bytes(i) for i in range(3, 259)) == bytes(range(256))
    assert [SPM.token_bytes(i) for i in range(3, 259)] == [bytes([byte]) for byte in range(256)]
    assert pieces(BPE, " the") == [b" the"]
    assert pieces(SPM, "the é") == [b" the", b" ", b"\xc3", b"\xa9"]
    assert BPE.token_bytes(2) == b"<|im_end|>"
    with pytest.raises(RequestError, match="token id -1 is outside the vocabulary"):
        BPE.token_bytes(-1)


def test_special_tokens_are_parsed_and_can_be_left_out() -> None:
    ids = BPE.encode("<|im_start|>the<|im_end|>")
    assert (ids[0], ids[-1]) == (1, 2)
    assert BPE.decode(ids) == "<|im_start|>the<|im_end|>"
    assert BPE.decode(ids, skip_special=True) == "the"


def test_user_defined_tokens_are_parsed_and_give_text() -> None:
    tokenizer = Tokenizer.from_gguf(changed(bpe_metadata(), tokens={0: "<think> ▁"}, token_type={0: 4}))
    assert tokenizer.encode("a<think> ▁") == [*tokenizer.encode("a"), 0]
    assert tokenizer.decode([0], skip_special=True) == "<think> ▁"
    assert not tokenizer.is_special(0)


def test_sentencepiece_prefixes_text_at_the_start_and_after_markers() -> None:
    assert pieces(SPM, "the") == [b" the"]
    assert pieces(SPM, "the</s>the<s> the") == [b" the", b"</s>", b" the", b"<s>", b" ", b" the"]
    assert SPM.encode("") == []
    plain = Tokenizer.from_gguf(spm_metadata() | {"tokenizer.ggml.add_space_prefix": False})
    assert pieces(plain, "the</s>the") == [b"t", b"he", b"</s>", b"t", b"he"]
    assert plain.decode(plain.encode(" the")) == " the"


def test_sentencepiece_merges_by_score_not_by_length() -> None:
    scores = spm_metadata()["tokenizer.ggml.scores"]
    tokens = spm_metadata()["tokenizer.ggml.tokens"]
    raised = Tokenizer.from_gguf(changed(spm_metadata(), scores={tokens.index("ou"): 1.0, tokens.index("on"): 2.0}))
    assert scores[tokens.index("on")] < 1.0
    assert pieces(raised, "oun")[1:] == [b"ou", b"n"]
    assert pieces(raised, "uon")[1:] == [b"u", b"on"]


@pytest.mark.parametrize(
    ("pre", "text", "words"),
    [
        ("gpt-2", "a  12 b's", ["a", " ", " 12", " b", "'s"]),
        ("smollm", "a  12 b's", ["a", "  ", "1", "2", " b", "'s"]),
        ("llama-bpe", "a  1234 B'S\n\nx", ["a", " ", " ", "123", "4", " B", "'S", "\n\n", "x"]),
        ("qwen2", "a12 !?\n", ["a", "1", "2", " !?\n"]),
        ("tekken", "HelloWorld/\n12", ["Hello", "World", "/\n", "1", "2"]),
        ("gpt-4o", "HelloWorld's 1234", ["Hello", "World's", " ", "123", "4"]),
        ("deepseek-llm", "a b,12   \n中文x", ["a", " b", ",", "1", "2", "   ", "\n", "中文", "x"]),
        ("deepseek-coder", "a b,12\n中文x", ["a", " b", ",", "1", "2", "\n", "中文", "x"]),
        ("deepseek-v3", "a1234中文.Net", ["a", "123", "4", "中文", ".Net"]),
        ("default", "a==b 12345", ["a", "==", "b", " ", "123", "45"]),
    ],
)
def test_pre_tokenizers_cut_words(pre: str, text: str, words: list[str]) -> None:
    cut = PRE_TOKENIZERS[pre].build().pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in cut] == words


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_keeps_the_text_and_is_quick_on_long_runs(pre: str) -> None:
    tokenizer = Tokenizer.from_gguf(bpe_metadata() | {"tokenizer.ggml.pre": pre})
    for text in [*TEXTS, " " * 20_000 + "a", "\n" * 5000 + "1", "aA" * 5000, "." * 20_000, "1" * 20_000, "é中" * 5000]:
        if not PRE_TOKENIZERS[pre].nfc or "\u0301" not in text:
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_word_that_is_a_token_needs_no_merges_in_llama_3() -> None:
    lone = changed(bpe_metadata(), tokens={259: "xyz"}, merges=[], pre="llama-bpe")
    assert Tokenizer.from_gguf(lone).encode("xyz") == [259]
    assert len(Tokenizer.from_gguf(lone | {"tokenizer.ggml.pre": "smollm"}).encode("xyz")) == 3


def test_bos_and_ends_of_generation() -> None:
    assert not BPE.add_bos
    assert SPM.add_bos
    assert Tokenizer.from_gguf(changed(bpe_metadata(), add_bos_token=None, pre="llama-bpe")).add_bos
    assert not Tokenizer.from_gguf(changed(bpe_metadata(), add_bos_token=None)).add_bos
    assert BPE.eog_ids == {0, 2}
    typed_normal = Tokenizer.from_gguf(
        changed(bpe_metadata(), token_type={0: 4, 2: 4}) | {"tokenizer.ggml.eot_token_id": 3}
    )
    assert typed_normal.eog_ids == {2, 3}
    assert typed_normal.is_special(2)


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(RequestError, match=r"lone surrogate \(U\+D800\) at position 2") as caught:
        BPE.encode("ab\ud800")
    assert caught.value.status == 400


def test_threads_share_a_tokenizer() -> None:
    text = "hello world, the 123 and " * 50
    results: list[list[int]] = []
    threads = [threading.Thread(target=lambda: results.append(BPE.encode(text))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [BPE.encode(text)] * 8


def test_the_template_of_the_file_is_used() -> None:
    tokenizer = Tokenizer.from_gguf(
        bpe_metadata() | {"tokenizer.chat_template": CHATML + "{{ bos_token ~ pad_token }}"}
    )
    text = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], add_generation_prompt=False)
    assert text == "<|im_start|>user\nx<|im_end|>\n<|im_start|><|im_end|>"
    with pytest.raises(TemplateError, match="has no chat template"):
        BPE.apply_chat_template([])


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no model": (changed(bpe_metadata(), model=None), "ggml.model is missing"),
    "other model": (changed(bpe_metadata(), model="t5"), "ggml.model is 't5'; supported are"),
    "other pre-tokenizer": (changed(bpe_metadata(), pre="nope"), "ggml.pre is 'nope'; supported are .*smollm"),
    "wrong type": (changed(bpe_metadata(), pre=7), "ggml.pre must be a string, not int"),
    "no tokens": (changed(bpe_metadata(), tokens=[]), "ggml.tokens is empty"),
    "tokens missing": (changed(bpe_metadata(), tokens=None), "ggml.tokens is missing"),
    "tokens no array": (changed(bpe_metadata(), tokens="abc"), "ggml.tokens must be an array, not str"),
    "number as token": (changed(bpe_metadata(), tokens={5: 3}), r"ggml.tokens\[5\] must be a string, not int"),
    "repeated": (
        changed(bpe_metadata(), tokens={9: "<|im_end|>"}),
        r"ggml.tokens\[9\] repeats tokens\[2\], '<\|im_end\|>'",
    ),
    "empty token": (changed(bpe_metadata(), tokens={5: ""}), r"ggml.tokens\[5\] has 0 characters"),
    "long token": (changed(bpe_metadata(), tokens={5: "a" * 5000}), r"ggml.tokens\[5\] has 5000 characters"),
    "not UTF-8": (changed(bpe_metadata(), tokens={5: "a\udcff"}), r"ggml.tokens\[5\] .*not valid UTF-8"),
    "not byte-level": (changed(bpe_metadata(), tokens={5: "a b"}), r"ggml.tokens\[5\] \('a b'\) .*byte-level alphabet"),
    "beyond byte-level": (changed(bpe_metadata(), tokens={7: "中"}), r"ggml.tokens\[7\] .*byte-level alphabet"),
    "types too few": (changed(bpe_metadata(), token_type=[1]), "ggml.token_type has 1 entries, but there are"),
    "type unknown": (changed(bpe_metadata(), token_type={4: 9}), r"ggml.token_type\[4\] is 9"),
    "type no number": (
        changed(bpe_metadata(), token_type={4: True}),
        r"ggml.token_type\[4\] must be an integer, not bool",
    ),
    "merge of unknown": (changed(bpe_metadata(), merges={1: "qq e"}), r"ggml.merges\[1\] \('qq e'\) needs two tokens"),
    "merge into unknown": (changed(bpe_metadata(), merges={1: "q z"}), r"ggml.merges\[1\] \('q z'\)"),
    "merge of one": (changed(bpe_metadata(), merges={1: "he"}), r"ggml.merges\[1\] \('he'\)"),
    "id out of range": (changed(bpe_metadata(), eos_token_id=10**6), "ggml.eos_token_id is 1000000, outside"),
    "id negative": (changed(bpe_metadata(), bos_token_id=-1), "ggml.bos_token_id is -1, outside"),
    "id no number": (changed(bpe_metadata(), eos_token_id="2"), "ggml.eos_token_id must be an integer, not str"),
    "eot out of range": (bpe_metadata() | {"tokenizer.ggml.eot_token_id": 10**6}, "ggml.eot_token_id is 1000000"),
    "bos wanted, not named": (
        changed(bpe_metadata(), add_bos_token=True, bos_token_id=None),
        "bos_token_id is missing",
    ),
    "template no string": (bpe_metadata() | {"tokenizer.chat_template": 3}, "chat_template must be a string, not int"),
    "no scores": (changed(spm_metadata(), scores=None), "ggml.scores is missing"),
    "scores too few": (changed(spm_metadata(), scores=[0.0]), "ggml.scores has 1 entries, but there are"),
    "score not finite": (changed(spm_metadata(), scores={300: float("nan")}), r"ggml.scores\[300\] is nan"),
    "score no number": (changed(spm_metadata(), scores={300: "1"}), r"ggml.scores\[300\] must be a number, not str"),
    "no types": (changed(spm_metadata(), token_type=None), "ggml.token_type is missing"),
    "byte misspelled": (
        changed(spm_metadata(), tokens={7: "<0x-1>"}),
        r"ggml.tokens\[7\] \('<0x-1>'\) is typed as a byte",
    ),
    "byte missing": (
        changed(spm_metadata(), tokens={7: "other"}, token_type={7: 1}, unknown_token_id=None),
        "ggml.tokens lacks the byte token <0x04>",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_vocabularies_are_named_exactly(name: str) -> None:
    metadata, message = BROKEN[name]
    with pytest.raises(
        ModelFileError, match=rf"^some\.gguf: tokenizer\.{message}" if "ggml" in message[:5] else message
    ):
        Tokenizer.from_gguf(metadata, "some.gguf")


def test_a_vocabulary_without_merges_spells_character_by_character() -> None:
    tokenizer = Tokenizer.from_gguf(changed(bpe_metadata(), merges=None))
    ids = tokenizer.encode("hello")
    assert [tokenizer.token_bytes(i) for i in ids] == [b"h", b"e", b"l", b"l", b"o"]


def test_other_threads_run_while_a_long_text_is_tokenised() -> None:
    tokenizer = Tokenizer.from_gguf(bpe_metadata())
    turns = 0
    with ThreadPoolExecutor(1) as pool:
        encoding = pool.submit(tokenizer.encode, "hello hello " * 200_000)
        while not encoding.done():
            turns += 1
            time.sleep(0)
    assert len(encoding.result()) > 0
    assert turns > 50
