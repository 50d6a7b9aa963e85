"""Grammars over our vocabularies: what a mask allows, where it ends, and what is refused."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from support.grammars import allowed, wander, write
from support.scripted_engine import ByteTokenizer
from support.vocabulary import bpe_metadata, spm_metadata
from ultrafast.engine import grammar as module
from ultrafast.engine.grammar import Grammars
from ultrafast.errors import RequestError
from ultrafast.models.gguf import GgufFile
from ultrafast.models.tokenizer import Tokenizer

JSON = r"""
start: value
value: object | array | STRING | NUMBER | "true" | "false" | "null"
object: "{" [pair ("," pair)*] "}"
pair: STRING ":" value
array: "[" [value ("," value)*] "]"
STRING: /"[^"\\\x00-\x1f]*"/
NUMBER: /-?(0|[1-9][0-9]{0,8})/
"""
YES = 'start: "yes"'


@pytest.fixture(scope="module")
def embedded(embedded_model_path: Path) -> Tokenizer:
    with GgufFile(embedded_model_path) as file:
        return Tokenizer.from_gguf(file.metadata)


@pytest.fixture(params=["bytes", "bpe", "spm", "embedded"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    if request.param == "bytes":
        return ByteTokenizer()
    if request.param == "embedded":
        return request.getfixturevalue("embedded")
    return Tokenizer.from_gguf(bpe_metadata() if request.param == "bpe" else spm_metadata())


def test_what_a_mask_allows_is_in_the_grammar(tokenizer: Any) -> None:
    grammars, rng = Grammars(tokenizer), random.Random(1)
    finished = 0
    for _ in range(30):
        text, complete = wander(grammars.constraint(JSON), tokenizer, rng, max_tokens=60)
        if complete:
            json.loads(text)
            finished += 1
    assert finished >= 5


def test_control_tokens_are_not_text(tokenizer: Any) -> None:
    constraint = Grammars(tokenizer).constraint("start: /(?s:.*)/")  # which their names would match
    tokens = allowed(constraint, tokenizer.vocab_size)
    assert {token for token in tokens if tokenizer.is_special(token)} == tokenizer.eog_ids
    assert len(tokens) > tokenizer.vocab_size * 0.4


def test_every_end_is_allowed_where_the_text_may_end_and_nothing_else_where_it_must(tokenizer: Any) -> None:
    size, ends = tokenizer.vocab_size, sorted(tokenizer.eog_ids)
    constraint = Grammars(tokenizer).constraint("start: /ab?/")
    a, b = (next(i for i in range(size) if tokenizer.token_bytes(i) == letter) for letter in (b"a", b"b"))
    assert not set(ends) & set(allowed(constraint, size))
    constraint.accept(a)
    may_end = allowed(constraint, size)
    assert set(ends) < set(may_end)
    assert {tokenizer.token_bytes(token) for token in set(may_end) - set(ends)} == {b"b"}
    constraint.accept(b)
    assert allowed(constraint, size) == ends
    constraint.accept(ends[-1])
    assert allowed(constraint, size) == ends


def test_tokens_that_spell_the_same_are_all_allowed() -> None:
    tokenizer = Tokenizer.from_gguf(spm_metadata())
    tokens = allowed(Grammars(tokenizer).constraint("start: /[AB]/"), tokenizer.vocab_size)
    assert [tokenizer.token_bytes(token) for token in tokens] == [b"A", b"B", b"A", b"B"]  # <0x41>, and the piece


@pytest.mark.parametrize(
    "text", ["hello there", " hello", "\n\nhello", "<|im_end|>", "x</s>y", "e\u0301 🚀", "many words " * 200]
)
def test_text_that_is_forced_is_written_with_the_tokens_it_is_read_with(tokenizer: Any, text: str) -> None:
    constraint, size = (
        Grammars(tokenizer).constraint(f"start: {json.dumps(text, ensure_ascii=False)}"),
        tokenizer.vocab_size,
    )
    written: list[int] = []
    while not tokenizer.eog_ids & set(tokens := allowed(constraint, size)):
        assert not any(map(tokenizer.is_special, tokens))
        written.append(tokens[0])
        constraint.accept(tokens[0])
    assert b"".join(map(tokenizer.token_bytes, written)) == text.encode()
    if text.isascii() and text.replace(" ", "").isalpha() and not tokenizer.strips_leading_space:
        assert written == tokenizer.encode(text)


@pytest.mark.parametrize("more", [1, 31, 32, 100])
def test_logits_past_the_vocabulary_are_never_allowed(tokenizer: Any, more: int) -> None:
    size = tokenizer.vocab_size
    constraint = Grammars(tokenizer, size + more).constraint("start: /(?s:.{3,})/")
    while not tokenizer.eog_ids & set(tokens := allowed(constraint, size + more)):
        assert max(tokens) < size
        constraint.accept(tokens[0])
    assert max(tokens) < size


def test_constraints_of_one_grammar_know_nothing_of_each_other(embedded: Tokenizer) -> None:
    grammars = Grammars(embedded)
    one, other = grammars.constraint(JSON), grammars.constraint(JSON)
    assert write(one, embedded.encode('{"one":['), embedded.vocab_size)
    assert write(other, embedded.encode('"other"'), embedded.vocab_size)
    assert write(one, embedded.encode("1]}"), embedded.vocab_size)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Empty grammar"),
        ("start: nothing", "nothing"),
        ('{"grammars": [{"json_schema": {"$ref": "#"}}]}', "nothing satisfies it"),
        ("start: /[/", "regex"),
        ("{", "EOF"),
        ('{"grammars": 3}', "invalid type"),
        ("start: /a/\n" + "x" * module.MAX_TEXT, "characters"),
    ],
)
def test_what_is_no_grammar_is_refused_with_the_reason(embedded: Tokenizer, text: str, reason: str) -> None:
    grammars = Grammars(embedded)
    for ask in (grammars.prepare, grammars.prepare, grammars.constraint):
        with pytest.raises(RequestError, match="cannot be guaranteed") as refusal:
            ask(text)
        assert reason in refusal.value.message
        assert (refusal.value.status, refusal.value.param, refusal.value.code) == (400, "grammar", "invalid_value")
        assert "\n" not in refusal.value.message
        refusal.value.param = "renamed by whoever caught it"


def test_a_token_that_was_not_allowed_is_an_error_and_stays_one(embedded: Tokenizer) -> None:
    constraint = Grammars(embedded).constraint(YES)
    for _ in range(2):
        with pytest.raises(RequestError):
            constraint.accept(embedded.encode("no")[0])
        with pytest.raises(RequestError):
            allowed(constraint, embedded.vocab_size)


def test_an_end_before_the_end_is_an_error(embedded: Tokenizer) -> None:
    constraint = Grammars(embedded).constraint(YES)
    with pytest.raises(RequestError):
        constraint.accept(min(embedded.eog_ids))


def test_a_text_that_takes_too_much_work_ends_with_the_reason(
    embedded: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_LEXER_STATES", 40)
    constraint = Grammars(embedded).constraint("start: /(a|b)*a(a|b){12}/")
    rng = random.Random(0)
    with pytest.raises(RequestError, match="states") as failure:  # noqa: PT012 (which of the two calls is not said)
        while True:
            constraint.accept(rng.choice(allowed(constraint, embedded.vocab_size)))
    assert (failure.value.status, failure.value.param) == (400, None)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that get compiled, as they are."""
    texts: list[str] = []
    compile_ = module._Vocabulary.compile

    def counting(self: Any, text: str) -> Any:
        texts.append(text)
        return compile_(self, text)

    monkeypatch.setattr(module._Vocabulary, "compile", counting)
    return texts


def test_threads_that_want_one_grammar_compile_it_once(compiled: list[str]) -> None:
    grammars = Grammars(ByteTokenizer())  # type: ignore[arg-type]
    barrier, problems = threading.Barrier(8), []

    def ask() -> None:
        barrier.wait()
        for text in (JSON, YES, "start: nothing"):
            try:
                grammars.prepare(text)
            except RequestError as error:
                problems.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(compiled) == sorted([JSON, YES, "start: nothing"])
    assert len(problems) == 8


def test_the_grammars_used_last_are_kept_and_no_others(compiled: list[str]) -> None:
    grammars = Grammars(ByteTokenizer())  # type: ignore[arg-type]
    for number in range(100):
        grammars.prepare(f'start: "{number}"')
        grammars.prepare(YES)
    assert compiled.count(YES) == 1
    compiled.clear()
    for number in range(100):
        grammars.prepare(f'start: "{number}"')
    assert len(compiled) == 100  # each was gone by the time it came again
    compiled.clear()
    large = ["start: /a/\n//" + str(number) * (module.MAX_TEXT // 2) for number in range(9)]
    for text in large * 2:
        grammars.prepare(text)
    assert len(compiled) == 18


def test_a_vocabulary_without_an_end_has_no_grammars() -> None:
    tokenizer = ByteTokenizer()
    tokenizer.eog_ids = frozenset()
    with pytest.raises(RequestError, match="no token that ends"):
        Grammars(tokenizer).prepare(YES)  # type: ignore[arg-type]


def test_a_server_that_is_asked_for_no_grammar_does_not_load_the_library() -> None:
    program = "import sys, ultrafast.serving.server; sys.exit('llguidance' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
