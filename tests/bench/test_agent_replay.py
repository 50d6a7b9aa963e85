"""Lockstep replay: every arm gets the recorded history, whatever it answered; files that are none are refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agent_model import ManualClock, ObedientModel, arm, breaks, says
from ultrafast.bench.agent.measure import Measurement
from ultrafast.bench.agent.replay import Recorded, read_recording, replay, write_recording
from ultrafast.bench.agent.run import Settings, run_task
from ultrafast.bench.agent.split import timeline
from ultrafast.bench.agent.ways import Way
from ultrafast.errors import ConfigError

SETTINGS = Settings(step_tokens=9)


def recorded(path: Path) -> list[Recorded]:
    clock = ManualClock()
    model = ObedientModel(clock)
    few = Settings(num_steps=3, step_tokens=5)
    run = asyncio.run(run_task(arm(), model, clock, few, round=1, on_step=lambda run, step: None))  # type: ignore[arg-type]
    write_recording(path, run.histories)
    return read_recording(path)


def test_every_arm_gets_the_recorded_history(tmp_path: Path) -> None:
    recording = recorded(tmp_path / "r.jsonl")
    clock = ManualClock()
    arms = [arm(), arm(Way.SOCKET), arm(tier="fast")]
    models = [ObedientModel(clock, changes={1: says("something else")}), ObedientModel(clock), ObedientModel(clock)]
    runs = asyncio.run(
        replay([*zip(arms, models, strict=True)], recording, clock, SETTINGS, round=1, on_step=lambda run, step: None)  # type: ignore[arg-type]
    )
    assert len(recording) == 6
    for model in models:
        assert [ask.prompt for ask in model.asked] == [line.messages for line in recording]
        assert [ask.max_tokens for ask in model.asked] == [5, 512] * 3
        assert not any("previous_response_id" in ask.extra for ask in model.asked)
        assert len({ask.extra["cache_salt"] for ask in model.asked}) == 1
    assert len({model.asked[0].extra["cache_salt"] for model in models}) == 3
    for run in runs:
        assert run.is_complete
        assert run.wall_s == pytest.approx(3 * 1.05 + 3 * 1.2)  # the turns of the others are not in it
        assert timeline(run)[-1].end_s == pytest.approx(run.wall_s)


def test_a_request_that_fails_is_told_and_the_others_are_sent(tmp_path: Path) -> None:
    recording = recorded(tmp_path / "r.jsonl")
    clock = ManualClock()
    model = ObedientModel(clock, changes={1: breaks, 2: breaks})
    (run,) = asyncio.run(
        replay([(arm(), model)], recording, clock, SETTINGS, round=1, on_step=lambda run, step: None)  # type: ignore[arg-type]
    )
    assert run.failure == "step 2: broken: the server went away"
    assert (len(model.asked), run.num_by_model) == (6, 4)


def test_conversations_of_others_will_do(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    lines = [
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "model": "x", "stream": True},
        {"messages": [{"role": "user", "content": "b"}, {"role": "assistant", "content": None}], "task": "other"},
    ]
    path.write_text("\n\n".join(map(json.dumps, lines)))
    recording = read_recording(path)
    clock = ManualClock()
    model = ObedientModel(clock)
    asyncio.run(
        replay([(arm(), model)], recording, clock, SETTINGS, round=1, on_step=lambda run, step: None)  # type: ignore[arg-type]
    )
    assert [ask.max_tokens for ask in model.asked] == [9, 9]
    assert len({ask.extra["cache_salt"] for ask in model.asked}) == 2  # two conversations
    assert not any(ask.tools or ask.tool_choice for ask in model.asked)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no request in it"),
        (b"{", "line 1"),
        (b"[]", "line 1"),
        (b'{"messages": []}', "line 1"),
        (b'{"messages": [{"content": "x"}]}', "messages[0] has no role"),
        (b'{"messages": [{"role": ["user"]}]}', "messages[0] has no role"),
        (b'{"messages": [{"role": "user", "content": "x"}]}\n{"messages": "x"}', "line 2"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', "line 1"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "line 1"),
        (b'{"messages": [{"x": ' + b"[" * 100_000, "line 1: JSON nested too deeply"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        read_recording(path)
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


_JSON = st.none() | st.integers(-2, 2) | st.text(max_size=3) | st.just([]) | st.just([{}]) | st.just({"a": [1.5, "x"]})
_MESSAGE = st.fixed_dictionaries({"role": _JSON | st.sampled_from(["user", "tool"]), "content": _JSON})
_LINE = st.fixed_dictionaries(
    {"messages": _JSON | st.lists(_MESSAGE, max_size=2)},
    optional={"tools": _JSON, "tool_choice": _JSON, "max_tokens": _JSON, "task": _JSON},
).map(lambda line: json.dumps(line).encode())


@given(lines=st.lists(st.binary(max_size=20) | _LINE, max_size=3))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(b"\n".join(lines))
    try:
        recording = read_recording(path)
    except ConfigError:
        return
    assert all(line.messages for line in recording)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recording(tmp_path)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_recording(tmp_path, [])


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ConfigError, match="asked for twice"):
        Measurement([arm(), arm()], SETTINGS, rounds=1)
    with pytest.raises(ConfigError, match="whole conversations"):
        Measurement([arm(Way.CONTINUED)], SETTINGS, rounds=1, recording=[Recorded([{"role": "user"}])])
