"""Completions: prompts of every form, echo, log-probabilities in columns, streams; what is refused by which name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.asgi import Answer, broken_in_mid_stream, client_of
from support.scripted_engine import ByteTokenizer, ScriptedEngine, text_of, with_tiers
from ultrafast.serving.wire.completion_logprobs import CompletionLogprobs, token_text
from ultrafast.types import SamplingParams, TokenLogprob

COMPLETIONS = "/v1/completions"


def ask(body: dict[str, Any], engine: Any = None) -> Answer:
    async def main() -> Answer:
        async with asyncio.timeout(30), client_of(engine or ScriptedEngine()) as client:
            return await client.post(COMPLETIONS, {"model": "scripted", **body})

    return asyncio.run(main())


def completed(engine: Any = None, **body: Any) -> dict[str, Any]:
    answer = ask(body, engine)
    assert answer.status == 200, answer.body
    result: dict[str, Any] = answer.json()
    return result


def streamed(**body: Any) -> list[dict[str, Any]]:
    """The chunks before the end."""
    answer = ask({"stream": True, **body})
    assert answer.status == 200, answer.body
    events = [data for _, data in answer.events()]
    assert events[-1] == "[DONE]"
    return events[:-1]


def test_an_answer_has_all_its_fields() -> None:
    answer = completed(prompt="Hi", max_tokens=9)
    assert answer["id"].startswith("cmpl-")
    assert (answer["object"], answer["model"], answer["service_tier"]) == ("text_completion", "scripted", "default")
    assert answer["choices"] == [{"index": 0, "text": text_of(9), "logprobs": None, "finish_reason": "length"}]
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (2, 9, 11)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 1}


def test_sixteen_tokens_unless_said_otherwise() -> None:
    assert completed(prompt="Hi")["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Hi", [b"Hi"]),
        (["Hi"], [b"Hi"]),
        (["Hi", "Ho"], [b"Hi", b"Ho"]),
        ([72, 105], [b"Hi"]),
        ([[72, 105]], [b"Hi"]),
        ([[72, 105], [72, 111, 33]], [b"Hi", b"Ho!"]),
    ],
)
def test_prompts_of_every_form(prompt: Any, expected: list[bytes]) -> None:
    engine = ScriptedEngine()
    answer = completed(engine, prompt=prompt, max_tokens=3, n=2)
    assert [bytes(request.prompt_ids) for request in engine.requests] == [p for p in expected for _ in range(2)]
    assert [choice["index"] for choice in answer["choices"]] == list(range(2 * len(expected)))
    assert answer["usage"]["prompt_tokens"] == sum(map(len, expected)), "each prompt counts once"
    assert answer["usage"]["completion_tokens"] == 6 * len(expected)


def test_fields_reach_the_engine() -> None:
    engine = ScriptedEngine()
    completed(
        engine,
        prompt="Hi",
        max_tokens=3,
        temperature=0,
        top_p=0.5,
        top_k=7,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={"65": -100},
        seed=5,
        n=2,
        best_of=2,
        stop=["§"] * 16,
        ignore_eos=True,
        logprobs=4,
        service_tier="ultrafast",
        service_tier_overflow="reject",
        cache_salt="s",
        deadline_s=50,
        suffix="",
        user="u",
    )
    expected = SamplingParams(
        max_tokens=3,
        temperature=0.0,
        top_p=0.5,
        top_k=7,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={65: -100.0},
        seed=5,
        stop=("§",) * 16,
        ignore_eos=True,
        logprobs=4,
    )
    request = engine.requests[0]
    assert request.params == expected
    assert [r.params.seed for r in engine.requests] == [5, 6]
    assert (request.tier, request.overflow, request.cache_salt, request.deadline_s) == ("ultrafast", "reject", "s", 50)
    assert request.prompt_logprobs is None


def test_stop_strings_do_not_appear() -> None:
    answer = completed(prompt="Hi", stop="tier", max_tokens=100)
    assert answer["choices"][0]["text"] == "Speed is a "
    assert answer["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("prompt", ["Hi ü", list("Hi ü".encode())])
def test_echo_with_logprobs(prompt: Any) -> None:
    (choice,) = completed(prompt=prompt, echo=True, logprobs=1, max_tokens=2, stop="§")["choices"]
    assert choice["text"] == "Hi ü" + text_of(2)
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["H", "i", " ", "bytes:\\xc3", "bytes:\\xbc", "S", "p"]
    assert logprobs["token_logprobs"] == [None, *[-0.5] * 6]
    assert logprobs["top_logprobs"] == [None, *({"\x00": -1.0, token: -0.5} for token in logprobs["tokens"][1:])]
    assert logprobs["text_offset"] == [0, 1, 2, 3, 3, 4, 5]


def test_logprobs_without_echo_are_of_the_completion() -> None:
    logprobs = completed(prompt="Hi", logprobs=0, max_tokens=2)["choices"][0]["logprobs"]
    assert logprobs == {
        "tokens": ["S", "p"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"S": -0.5}, {"p": -0.5}],
        "text_offset": [0, 1],
    }


def test_a_prompt_alone() -> None:
    answer = completed(prompt=["Hi", "Ho!"], echo=True, logprobs=1, max_tokens=0)
    assert [choice["text"] for choice in answer["choices"]] == ["Hi", "Ho!"]
    assert [choice["logprobs"]["tokens"] for choice in answer["choices"]] == [["H", "i"], ["H", "o", "!"]]
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
    assert answer["usage"]["completion_tokens"] == 0


def test_who_scores_a_prompt_gets_the_token_that_it_cuts_off() -> None:
    """Harnesses read ``token_logprobs[context:-1]``: they would err if the token were left out for ending the text."""
    engine = ScriptedEngine()
    completed(engine, prompt="Hi", echo=True, logprobs=1, max_tokens=1)
    completed(engine, prompt="Hi", echo=True, logprobs=1, max_tokens=2)
    completed(engine, prompt="Hi", logprobs=1, max_tokens=1)
    completed(engine, prompt="Hi", echo=True, max_tokens=1)
    assert [request.params.ignore_eos for request in engine.requests] == [True, False, False, False]


@pytest.mark.parametrize("fields", [{}, {"echo": True}, {"logprobs": 2}, {"echo": True, "logprobs": 2}])
def test_a_stream_says_the_same(fields: dict[str, Any]) -> None:
    body = {"prompt": ["Hi ü", "Ho"], "n": 2, "max_tokens": 40, "seed": 1, **fields}
    chunks = streamed(**body, stream_options={"include_usage": True})
    whole = completed(**body)
    heads = {tuple(c[name] for name in ("id", "object", "created", "model", "service_tier")) for c in chunks}
    assert len(heads) == 1
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    for index, expected in enumerate(whole["choices"]):
        mine = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert "".join(choice["text"] for choice in mine) == expected["text"]
        assert [c["finish_reason"] for c in mine] == [None] * (len(mine) - 1) + ["length"]
        if "logprobs" in fields:
            for name, column in expected["logprobs"].items():
                assert [entry for choice in mine for entry in choice["logprobs"][name]] == column
        else:
            assert all(choice["logprobs"] is None for choice in mine)


def test_streams_without_usage_have_no_usage_field() -> None:
    assert all("usage" not in chunk for chunk in streamed(prompt="Hi"))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [None]}, "prompt[0]"),
        ({"prompt": [{}]}, "prompt[0]"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": [1.5]}, "prompt[0]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [[1], "a"]}, "prompt[1]"),
        ({"prompt": [[1], [1, "a"]]}, "prompt[1][1]"),
        ({"prompt": [256]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [2**70]}, "prompt"),
        ({"prompt": "x" * 5000}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": ["a"] * 65, "n": 2}, "n"),
        ({"prompt": "a", "n": 0}, "n"),
        ({"prompt": "a", "best_of": 2}, "best_of"),
        ({"prompt": "a", "n": 2, "best_of": 3}, "best_of"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "logprobs": 6}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 4096}, "max_tokens"),
        ({"prompt": "a", "echo": "yes"}, "echo"),
        ({"prompt": "a", "stop": ["x"] * 17}, "stop"),
        ({"prompt": "a", "stop": [""]}, "stop[0]"),
        ({"prompt": "a", "temperature": 3}, "temperature"),
        ({"prompt": "a", "logit_bias": {"999": 1}}, "logit_bias"),
        ({"prompt": "a", "service_tier": "warp"}, "service_tier"),
        ({"prompt": "a", "service_tier": "flex", "service_tier_overflow": "queue"}, "service_tier_overflow"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str) -> None:
    answer = ask(body)
    assert answer.status == 400, answer.body
    assert answer.error["param"] == param
    assert answer.error["code"] in (
        "invalid_value",
        "missing_required_parameter",
        "unsupported_parameter",
        "context_length_exceeded",
    )


def test_more_prompts_than_ever_fit_are_refused_by_name() -> None:
    tiers = with_tiers(default={"slots": 2, "queue": 1})
    answer = ask({"prompt": ["a"] * 4}, ScriptedEngine(tiers=tiers))
    assert (answer.status, answer.error["param"]) == (400, "prompt")


def test_prompts_are_served_together_or_not_at_all() -> None:
    async def main() -> tuple[Answer, int]:
        engine = ScriptedEngine(tiers=with_tiers(flex={"slots": 2}))
        async with asyncio.timeout(30), client_of(engine) as client:
            answer = await client.post(COMPLETIONS, {"model": "scripted", "prompt": ["a", [999]]})
            return answer, len(engine.requests)

    answer, num_requests = asyncio.run(main())
    assert (answer.status, num_requests) == (400, 0)


def test_an_unknown_model_is_404() -> None:
    answer = ask({"model": "gpt-9", "prompt": "a"})
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")


def test_a_failure_in_mid_stream_is_told_in_the_stream() -> None:
    body = {"model": "scripted", "prompt": "Hi", "stream": True, "max_tokens": 60}
    answer = asyncio.run(broken_in_mid_stream(ScriptedEngine(paced=True), COMPLETIONS, body, b"text_completion"))
    assert answer.events()[-1][1]["error"]["code"] == "server_error"


@pytest.mark.parametrize(("script", "text"), [(" Paris", " Paris"), ("is", "is"), ("  x", "  x")])
def test_a_continuation_keeps_its_space(monkeypatch: pytest.MonkeyPatch, script: str, text: str) -> None:
    """Vocabularies that put a space before every text take it off again at the start of an answer."""
    monkeypatch.setattr(ByteTokenizer, "strips_leading_space", True)
    body = {"prompt": "France's capital", "echo": True, "logprobs": 0}
    (choice,) = completed(ScriptedEngine(script), **body)["choices"]
    assert choice["text"] == "France's capital" + text
    answer = ask({"stream": True, "stop": "§", "prompt": "a"}, ScriptedEngine(script))
    assert "".join(c["text"] for _, data in answer.events()[:-1] for c in data["choices"]) == text


class Words(ByteTokenizer):
    """Ids are words; the first begins a sequence, the second ends one."""

    words = ("<s>", "</s>", " Hi", " there", "\u00fc")
    bos_id = 0
    strips_leading_space = True

    def token_bytes(self, id: int) -> bytes:
        return self.words[id].encode()

    def is_special(self, id: int) -> bool:
        return id < 2


def columns(sent: Any, ids: list[int], output: list[int]) -> dict[str, Any]:
    logprobs = CompletionLogprobs(Words())
    if ids:
        logprobs.add_prompt(ids, [TokenLogprob(token, -1.0) for token in ids[1:]], sent)
    logprobs.add_output([TokenLogprob(token, -1.0) for token in output])
    return logprobs.take()


@pytest.mark.parametrize(
    ("sent", "ids", "output", "offsets"),
    [
        ("Hi there", [0, 2, 3], [3, 4], [0, 0, 2, 8, 14]),  # the added <s> is not in what was sent, nor its first space
        ("<s>Hi", [0, 2], [4], [0, 3, 6]),
        ([0, 2], [0, 2], [4, 1], [0, 3, 6, 7]),  # the </s> of an answer is not in its text
        (None, [], [2, 3, 1], [0, 3, 9]),
    ],
)
def test_places_are_those_in_the_text(sent: Any, ids: list[int], output: list[int], offsets: list[int]) -> None:
    assert columns(sent, ids, output)["text_offset"] == offsets


def test_impossible_tokens_have_a_logprob_that_json_can_say() -> None:
    logprobs = CompletionLogprobs(ByteTokenizer())
    logprobs.add_output([TokenLogprob(65, float("-inf"), ((66, float("-inf")), (67, -0.5)))])
    taken = logprobs.take()
    assert taken["token_logprobs"] == [-9999.0]
    assert taken["top_logprobs"] == [{"B": -9999.0, "C": -0.5, "A": -9999.0}]


@given(st.binary(min_size=1, max_size=8), st.binary(min_size=1, max_size=8))
def test_different_tokens_look_different(a: bytes, b: bytes) -> None:
    assert (token_text(a) == token_text(b)) == (a == b) or b"bytes:" in a + b
