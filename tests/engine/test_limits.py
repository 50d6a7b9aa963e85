"""What may be asked: every field at the edges of its range and far beyond, refused by name and without harm."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ultrafast import Engine
from ultrafast.engine.limits import check_request, resolve_max_tokens
from ultrafast.engine.tiers import Overflow
from ultrafast.errors import PromptTooLong, RequestError
from ultrafast.types import GenerateRequest, SamplingParams

VOCAB, CONTEXT = 288, 512
WRONG_TYPES: list[Any] = ["1", "", b"1", [1], [10**5000], {}, {1: 2}, (), 1j, object(), len]
NOT_FINITE = [math.nan, math.inf, -math.inf]
HUGE = [2**63, -(2**63) - 1, 2**64, 10**30, -(10**30), 10**400, -(10**400), 10**5000]

# field: accepted values, refused values beside the wrong types
FIELDS: dict[str, tuple[list[Any], list[Any]]] = {
    "max_tokens": ([None, 1, 100], [0, -1, 2**31, 1.0, 0.5, True, *HUGE, *NOT_FINITE]),
    "temperature": ([0, 0.0, 1e-300, 1, 2, 100], [-1e-9, -1, 100.1, 2**31, None, True, *HUGE, *NOT_FINITE]),
    "top_k": ([0, 1, VOCAB, 2**31 - 1], [-1, 2**31, 1.0, None, True, *HUGE, *NOT_FINITE]),
    "top_p": ([1e-300, 0.5, 1, 1.0], [0, 0.0, -0.1, 1.0001, 2, None, True, *HUGE, *NOT_FINITE]),
    "min_p": ([0, 0.5, 1], [-0.1, 1.1, None, True, *HUGE, *NOT_FINITE]),
    "repetition_penalty": ([0.01, 1, 100], [0, -1, 101, None, True, *HUGE, *NOT_FINITE]),
    "presence_penalty": ([-100, 0, 100.0], [-101, 101, None, True, *HUGE, *NOT_FINITE]),
    "frequency_penalty": ([-100, 0, 100.0], [-101, 101, None, True, *HUGE, *NOT_FINITE]),
    "seed": ([0, -1, -(2**63), 2**63, 2**64 - 1], [2**64, -(2**63) - 1, 10**5000, 1.0, None, True, *NOT_FINITE]),
    "logprobs": ([None, 0, 20], [-1, 21, 1.0, True, *HUGE, *NOT_FINITE]),
    "ignore_eos": ([True, False], [0, 1, None, 2.0]),
    "stop": (
        [(), ("a",), ["a", "b"], tuple("abcdefghijklmnop")],
        [5, 1.5, True, ("",), ["a", ""], [5], [None], ["a"] * 17],
    ),
    "logit_bias": (
        [{}, {0: 1, VOCAB - 1: -100.0}, {5: 100}],
        [
            None, 5, [[1, 2]], {-1: 1}, {VOCAB: 1}, {2**31: 1}, {10**5000: 1}, {"1": 1}, {1.0: 1}, {True: 1}, {None: 1},
            {1: None}, {1: "1"}, {1: True}, {1: 100.5}, {1: math.nan}, {1: -math.inf}, {1: 10**400}, {1: [1]},
        ],
    ),
}  # fmt: skip

REFUSED = [(name, value) for name, (_, refused) in FIELDS.items() for value in refused] + [
    (name, value)
    for name in FIELDS
    for value in WRONG_TYPES
    if not (name == "logit_bias" and isinstance(value, dict)) and not (name == "stop" and value in ((), "1"))
]


def test_every_field_is_covered() -> None:
    assert set(FIELDS) == set(SamplingParams.__dataclass_fields__)


@pytest.mark.parametrize("name", FIELDS)
def test_what_is_in_range_is_served(engine: Engine, name: str) -> None:
    for value in FIELDS[name][0]:
        params = {"max_tokens": 2, name: value}
        assert engine.generate([5, 6], **params).usage.prompt_tokens == 2


@pytest.mark.parametrize("name", FIELDS)
def test_none_is_the_default_to_generate_and_refused_in_a_request(engine: Engine, name: str) -> None:
    assert engine.generate([5, 6], **{"max_tokens": 2, name: None}).usage.prompt_tokens == 2
    if name not in ("max_tokens", "logprobs"):
        with pytest.raises(RequestError, match=name):
            engine.check(GenerateRequest([5, 6], SamplingParams(**{name: None})))


def test_numbers_of_numpy_are_numbers(engine: Engine) -> None:
    params = {"max_tokens": np.int64(3), "temperature": np.float32(1), "seed": np.uint64(7), "ignore_eos": True}
    plain = engine.generate([5, 6], max_tokens=3, temperature=1.0, seed=7, ignore_eos=True)
    assert engine.generate(np.array([5, 6]), **params).token_ids == plain.token_ids
    assert np.array_equal(engine.logits(np.array([5, 6])), engine.logits([5, 6]))


@pytest.mark.parametrize("name", FIELDS)
def test_what_is_not_is_refused_by_name(engine: Engine, name: str) -> None:
    for value in [value for field, value in REFUSED if field == name and value is not None]:
        with pytest.raises(RequestError) as refusal:
            engine.generate([5, 6], **{"max_tokens": 2, name: value})
        assert refusal.value.param == name
        assert name in refusal.value.message
        assert refusal.value.status == 400
        assert len(refusal.value.message) < 300
        request = GenerateRequest([5, 6], SamplingParams(**{name: value}))
        for call in (engine.check, engine.add):
            with pytest.raises(RequestError):
                call(request)


SERVICE: dict[str, tuple[list[Any], list[Any]]] = {
    "tier": (["ultrafast", "fast", "default", "flex"], ["", "auto", "Fast", None, 1, ["fast"]]),
    "overflow": ([None, "default", "queue", "reject", Overflow.QUEUE], ["", "wait", 1, ["queue"]]),
    "cache_salt": (["", "x" * 256], [None, 1, b"x"]),
    "deadline_s": ([None, 1e-9, 1, 86400], [0, -1, 86400.1, math.nan, math.inf, True, "1", 10**400]),
    "grammar": ([None, "", "start: /a/"], [1, ["start: /a/"], b"start: /a/", True]),
    "prompt_logprobs": ([None, 0, 20], [-1, 21, 1.0, True, "1", *HUGE, *NOT_FINITE]),
    "prediction": ([(), [0, VOCAB - 1]], [[-1], [VOCAB], [1.0], ["a"], [True]]),
}


@pytest.mark.parametrize("name", SERVICE)
def test_what_a_request_says_about_its_service(engine: Engine, name: str) -> None:
    accepted, refused = SERVICE[name]
    for value in accepted:
        engine.check(GenerateRequest([5, 6], SamplingParams(), **{name: value}))
    for value in refused:
        with pytest.raises(RequestError) as refusal:
            engine.check(GenerateRequest([5, 6], SamplingParams(), **{name: value}))
        assert (refusal.value.status, refusal.value.param) == (400, name)


def test_a_refusal_disturbs_nobody(engine: Engine) -> None:
    expected = engine.generate("hello", max_tokens=200, ignore_eos=True).token_ids
    refused = iter(REFUSED * 2)
    token_ids: list[int] = []
    for delta in engine.stream("hello", max_tokens=200, ignore_eos=True):
        token_ids += delta.token_ids
        for name, value in [next(refused) for _ in range(20)]:
            if value is None:
                continue
            with pytest.raises(RequestError):
                engine.generate([5, 6], **{name: value})
    assert token_ids == expected


def test_an_unknown_field_is_a_type_error(engine: Engine) -> None:
    with pytest.raises(TypeError, match="temprature"):
        engine.generate("hello", temprature=1)


def test_very_long_prompts_are_refused_at_once(engine: Engine) -> None:
    for prompt in ([1] * 1_000_000, [-1] * 1_000_000, range(10**9)):
        with pytest.raises(PromptTooLong):
            engine.check(GenerateRequest(prompt, SamplingParams()))


def test_many_biases_and_long_stops_are_served(engine: Engine) -> None:
    everything = dict.fromkeys(range(VOCAB), -3.25)
    plain = engine.generate("hello", max_tokens=9, ignore_eos=True).text
    assert engine.generate("hello", max_tokens=9, ignore_eos=True, logit_bias=everything).text == plain
    assert engine.generate("hello", max_tokens=9, ignore_eos=True, stop=["\0" * 100_000] * 16).text == plain


def test_max_tokens_defaults_to_what_is_left() -> None:
    request = GenerateRequest([1] * 10, SamplingParams())
    assert resolve_max_tokens(request, 100) == 90
    assert resolve_max_tokens(GenerateRequest([1] * 10, SamplingParams(max_tokens=7)), 100) == 7
    assert resolve_max_tokens(GenerateRequest([1] * 10, SamplingParams(max_tokens=0)), 100) == 0


_anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.integers(), max_size=3),
    st.dictionaries(st.one_of(st.integers(-2, 300), st.text(max_size=1)), st.floats(), max_size=3),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    prompt=st.lists(st.one_of(st.integers(), st.floats(), st.none()), max_size=4),
    params=st.dictionaries(st.sampled_from(sorted(FIELDS)), _anything),
)
def test_nothing_but_request_errors(prompt: list[Any], params: dict[str, Any]) -> None:
    with contextlib.suppress(RequestError):
        check_request(GenerateRequest(prompt, SamplingParams(**params)), VOCAB, CONTEXT)
        assert all(isinstance(token, int) and 0 <= token < VOCAB for token in prompt)
        assert 0 <= params.get("temperature", 0) <= 100
        assert 0 < params.get("top_p", 1) <= 1
