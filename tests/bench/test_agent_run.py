"""One arm's way through the task: what is sent, what becomes of wrong answers, and what is recorded."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from support.agent_model import ManualClock, ObedientModel, arm, breaks, calls, says
from ultrafast.bench.agent.records import TaskRun
from ultrafast.bench.agent.run import Settings, run_task
from ultrafast.bench.agent.task import Task
from ultrafast.bench.agent.ways import Way
from ultrafast.bench.client.call import Call

NO_NOTES = Settings(num_steps=10, step_tokens=0)


def run(model: ObedientModel, clock: ManualClock, settings: Settings = NO_NOTES, **fields: Any) -> TaskRun:
    chosen = arm(**fields)
    return asyncio.run(
        run_task(chosen, model, clock, settings, round=1, on_step=lambda run, step: None)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("step_tokens", [0, 7])
def test_a_model_that_keeps_to_schemas_does_every_step(way: Way, step_tokens: int) -> None:
    clock = ManualClock()
    model = ObedientModel(clock)
    done = run(model, clock, Settings(num_steps=10, step_tokens=step_tokens), way=way)
    assert done.is_complete
    assert (done.num_by_model, done.num_retries) == (10, 0)
    assert [step.title for step in done.steps] == [step.tool for step in Task(10).steps]
    assert [request.purpose for request in done.requests] == (["note", "call"] if step_tokens else ["call"]) * 10
    assert [ask.max_tokens for ask in model.asked[:2]] == ([7, 512] if step_tokens else [512, 512])
    assert all(ask.tools == model.asked[0].tools for ask in model.asked)  # so that prompts begin alike
    assert len({ask.seed for ask in model.asked}) == len(model.asked)


def test_the_whole_conversation_is_sent_or_what_is_new() -> None:
    sent = {}
    for way in Way:
        clock = ManualClock()
        model = ObedientModel(clock)
        run(model, clock, Settings(num_steps=4, step_tokens=5), way=way)
        sent[way] = model.asked
    whole, new = sent[Way.CHAT], sent[Way.SOCKET]
    roles = ["system", "user", "user", "assistant", "user", "assistant", "tool", "user"]
    assert [message["role"] for message in whole[2].prompt] == roles  # type: ignore[index]
    assert "previous_response_id" not in whole[2].extra
    assert [message["role"] for message in new[2].prompt] == ["tool", "user"]  # type: ignore[index]
    assert [ask.extra.get("previous_response_id") for ask in new] == [None, *(f"resp_{i}" for i in range(7))]
    assert [sent[way][0].extra.get("store") for way in Way] == [None, False, True, False]
    together = [message for ask in new for message in ask.prompt]  # all that was ever said, but the model's own words
    assert together == [message for message in whole[-1].prompt if message["role"] != "assistant"]  # type: ignore[index]


def test_conversations_keep_to_their_own_caches() -> None:
    firsts = []
    for takes_salt in (True, True, False, False):
        clock = ManualClock()
        model = ObedientModel(clock)
        run(model, clock, takes_salt=takes_salt)
        firsts.append((model.asked[0].extra.get("cache_salt"), model.asked[0].prompt[0]["content"]))  # type: ignore[index]
    (salt_a, text_a), (salt_b, text_b), (none_a, marked_a), (none_b, marked_b) = firsts
    assert salt_a != salt_b
    assert text_a == text_b
    assert none_a is none_b is None
    assert marked_a != marked_b
    assert marked_a.endswith(text_a)


@pytest.mark.parametrize(
    ("change", "problem", "follows"),
    [
        (calls(("finish", "{}")), "a call of finish", "tool"),
        (calls(("list_files", "{}"), ("list_files", "{}")), "2 calls", "tool"),
        (calls(("list_files", '{"x": 1}')), "other arguments", "tool"),
        (calls(("list_files", '{"x')), "a call whose arguments are no JSON object", "user"),
        (says("I would rather talk."), "no call", "user"),
    ],
)
def test_a_wrong_answer_is_told_and_tried_once_more(change: Any, problem: str, follows: str) -> None:
    clock = ManualClock()
    model = ObedientModel(clock, changes={0: change})
    done = run(model, clock)
    assert done.is_complete
    assert (done.num_by_model, done.num_retries) == (10, 1)
    assert done.steps[0].requests[0].problem == problem
    assert [request.attempt for request in done.steps[0].requests] == [1, 2]
    assert done.retry_s == pytest.approx(1.2)
    history = model.asked[1].prompt
    assert history[-1]["role"] == follows  # type: ignore[index]
    assert problem in history[-1]["content"]  # type: ignore[index]
    assert_sound(history)
    assert_sound(model.asked[-1].prompt)


def test_a_step_that_fails_twice_is_done_for_the_model_and_marked() -> None:
    clock = ManualClock()
    model = ObedientModel(clock, changes={2: says("no"), 3: calls(("finish", "{}"))})
    done = run(model, clock)
    assert done.is_complete
    assert [step.by_model for step in done.steps] == [True, True, False, *[True] * 7]
    assert "It was done for you" in model.asked[4].prompt[-2]["content"]  # type: ignore[index]
    assert_sound(model.asked[-1].prompt)


def test_a_call_in_place_of_a_note_gets_its_answer_too() -> None:
    clock = ManualClock()
    model = ObedientModel(clock, changes={0: calls(("list_files", "{}"))})
    done = run(model, clock, Settings(num_steps=3, step_tokens=5))
    assert done.num_by_model == 3
    assert done.requests[0].problem == "a call where text was asked for"
    assert_sound(model.asked[-1].prompt)


def test_a_server_that_goes_away_ends_the_task_where_it_is() -> None:
    clock = ManualClock()
    model = ObedientModel(clock, changes={4: breaks})
    done = run(model, clock)
    assert not done.is_complete
    assert done.failure == "step 5: broken: the server went away"
    assert (len(done.steps), done.num_by_model) == (5, 4)
    assert len(model.asked) == 5


def test_slow_tools_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        clock.time_s += seconds

    monkeypatch.setattr("asyncio.sleep", sleep)
    done = run(ObedientModel(clock), clock, Settings(num_steps=3, step_tokens=0, tool_s=2.5))
    assert [tool.end_s - tool.start_s for step in done.steps for tool in step.tools] == [2.5] * 3


def test_costs_know_what_was_cached() -> None:
    clock = ManualClock()
    done = run(ObedientModel(clock), clock)
    price = arm().endpoint.price
    assert price is not None
    assert done.cost(price) == pytest.approx(10 * (50 * 1.0 + 50 * 0.5 + 20 * 2.0) / 1e6)
    done.requests[3].call.prompt_tokens = None
    assert done.cost(price) is None


def assert_sound(messages: Any) -> None:
    """As APIs want it: every call has its result right after it, no result is without a call, arguments are JSON."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls
        assert message["content"] or message.get("tool_calls")
        for call in message.get("tool_calls", []):
            json.loads(call["function"]["arguments"])
            open_calls.append(call["id"])
    assert not open_calls


def test_what_is_recorded_is_what_was_sent() -> None:
    clock = ManualClock()
    model = ObedientModel(clock)
    done = run(model, clock, Settings(num_steps=3, step_tokens=5))
    assert [history["messages"] for history in done.histories] == [ask.prompt for ask in model.asked]
    assert [history["step"] for history in done.histories] == [1, 1, 2, 2, 3, 3]
    assert isinstance(done.calls[0], Call)
