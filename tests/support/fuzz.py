"""Seeded mutation of request bodies: valid ones, gone wrong in up to four ways; and what must hold of the answers."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections import Counter
from typing import Any

from support.asgi import Answer, Client

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"

_AT_ONCE = 20
_LIMIT_S = 30.0  # for one answer

_JUNK: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1,
    7,
    2**31 - 1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**40,
    0.5,
    -0.0,
    1e-320,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "a",
    "auto",
    "7",
    "\x00",
    "é\u0301🚀👨‍👩‍👧\u202e\ufeff",
    "<|im_end|><|endoftext|></s>",
    "{{ messages }}{% for x in range(10**9) %}",
    "../../etc/passwd",
    "x" * 5000,
    [],
    [[]],
    ["a", 1, None],
    {},
    {"type": "text"},
    {"type": "input_text", "text": "hi"},
    {"role": "user", "content": "hi"},
    {"": {"": {}}},
]


def valid_body(path: str, model: str, rng: random.Random) -> dict[str, Any]:
    """A body with nearly every field, as accepted."""
    common = {
        "model": model,
        "temperature": rng.choice([0, 0.7, 2]),
        "top_p": 0.9,
        "top_logprobs": 2,
        "stream": rng.random() < 0.5,
        "service_tier": rng.choice(["auto", "default", "flex", "priority", "fast", "ultrafast"]),
        "service_tier_overflow": rng.choice([None, "reject"]),
        "cache_salt": rng.choice(["", "a"]),
        "deadline_s": 1000.5,
        "metadata": {"a": "b"},
        "user": "u",
        "store": False,
        "tools": [],
        "tool_choice": "auto",
    }
    parts = [{"type": "text", "text": "Hello "}, {"type": "input_text", "text": "there 🚀"}]
    messages = [
        {"role": "system", "content": "Be quick."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Go on."},
    ]
    if path == RESPONSES:
        return common | {
            "input": rng.choice(["Hi", messages, [*messages, *_ITEMS]]),
            "instructions": "Short.",
            "max_output_tokens": 4,
            "include": ["message.output_text.logprobs"],
            "text": {"format": {"type": "text"}, "verbosity": "low"},
            "reasoning": {"effort": "low", "summary": "auto"},
            "truncation": rng.choice(["disabled", "auto"]),
            "previous_response_id": None,
            "prompt_cache_options": {"prewarm": False},
            "background": False,
        }
    common |= {
        "max_tokens": 4,
        "n": 2,
        "top_k": 5,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "seed": 1,
        "stop": ["\n", "END"],
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "logit_bias": {"5": 1.5},
        "stream_options": {"include_usage": True},
    }
    if path == COMPLETIONS:
        return common | {
            "prompt": rng.choice(["Hi 🚀", ["Hi", "Ho"], [72, 105], [[72, 105], [72]]]),
            "echo": rng.random() < 0.5,
            "logprobs": rng.choice([None, 0, 5]),
            "best_of": 2,
            "suffix": None,
        }
    return common | {
        "messages": [*messages, *(_CALLS if rng.random() < 0.5 else [])],
        "max_completion_tokens": 5,
        "logprobs": True,
        "parallel_tool_calls": True,
        "reasoning_effort": "low",
        "prediction": {"type": "content", "content": rng.choice(["Hi 🚀", parts[:1]])},
        "response_format": {"type": "text"},
    }


_CALLS: list[dict[str, Any]] = [
    {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        "reasoning_content": "Hm.",
    },
    {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "fine"}]},
    {"role": "assistant", "content": None, "function_call": {"name": "g", "arguments": "{}"}},
    {"role": "function", "name": "g", "content": "fine"},
]
"""The end of a Chat conversation with calls."""

_ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "fine"}]},
    {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "x", "namespace": "n"},
    {"type": "custom_tool_call_output", "call_id": "d", "output": "fine"},
    {"type": "item_reference", "id": "rs_1"},
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]},
    {"type": "configuration_update", "text": {"format": {"type": "text"}}},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}], "phase": None},
]
"""Items of a Responses conversation, of every kind."""


def fuzzed(path: str, model: str, rng: random.Random) -> bytes:
    """A mutated body."""
    body: Any = valid_body(path, model, rng)
    for _ in range(rng.randint(0, 3)):
        body = mutate_value(body, rng)
    raw = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    return mutate_bytes(raw, rng) if rng.random() < 0.2 else raw


def mutate_value(body: Any, rng: random.Random) -> Any:
    """Change one place in a JSON value: replace, remove, rename, repeat or bury it."""
    body = copy.deepcopy(body)
    places = list(_places(body))
    if not places:
        return rng.choice(_JUNK)
    container, key = rng.choice(places)
    kind = rng.randrange(6)
    if kind <= 2:
        container[key] = copy.deepcopy(rng.choice(_JUNK))
    elif kind == 3:
        del container[key]
    elif kind == 4:
        if isinstance(container, dict):
            container[rng.choice(["x", "", "type", "role", "content", "stream", "prompt"])] = container.pop(key)
        else:
            container.extend(copy.deepcopy(container[key]) for _ in range(rng.choice([1, 3, 50])))
    else:
        for _ in range(rng.choice([1, 10, 200])):
            container[key] = rng.choice([[container[key]], {"content": container[key]}])
    return body


def _places(value: Any) -> Any:
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from _places(child)


def mutate_bytes(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw) + 1)
    noise = rng.choice([b"\x00", b"\xff", b"[" * 2000, b'{"a":' * 2000, b"\\ud800", b'"', b",", rng.randbytes(8)])
    return rng.choice([raw[:at], raw[at:], raw[:at] + noise + raw[at:], raw[:at] + noise + raw[at + 1 :], raw + raw])


def check(answer: Answer) -> None:
    """Whole, and in the API's shape."""
    assert answer.status in (200, 400, 404, 408, 429), (answer.status, answer.body[:500])
    if answer.status == 408:  # a deadline of next to nothing
        assert answer.error["code"] == "deadline_exceeded"
    elif answer.status == 429:  # a tier was full
        assert answer.error["type"] == "rate_limit_error"
        assert int(answer.headers["retry-after"]) >= 1
    elif answer.status != 200:
        assert answer.error["message"]
        assert answer.error["type"] == "invalid_request_error"
    elif answer.headers["content-type"].startswith("text/event-stream"):
        name, data = answer.events()[-1]
        late = "The deadline of" in str(data)
        assert data == "[DONE]" or late or name in ("response.completed", "response.incomplete")
    else:
        assert answer.json()["usage"]["total_tokens"]


async def fuzz(client: Client, model: str, *, num_bodies: int, seed: int) -> Counter[int]:
    """Send the bodies, a few at once; returns how often each status came."""
    statuses: Counter[int] = Counter()
    numbers = iter(range(num_bodies))

    async def sender() -> None:
        for number in numbers:
            rng = random.Random(f"{seed} {number}")
            path = rng.choice([CHAT, COMPLETIONS, RESPONSES])
            body = fuzzed(path, model, rng)
            try:
                async with asyncio.timeout(_LIMIT_S):
                    answer = await client.post(path, body)
                check(answer)
            except BaseException as error:
                error.add_note(f"body {number} to {path}: {body[:2000]!r}")
                raise
            statuses[answer.status] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(sender())
    stats = client.loop.stats()
    assert stats["running"] == stats["waiting"] == 0
    assert stats["free_blocks"] + stats["cached_blocks"] == stats["num_blocks"]
    return statuses
