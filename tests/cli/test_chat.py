"""The conversation of `ultrafast chat`, on answers that are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ultrafast.cli import chat
from ultrafast.errors import PromptTooLong
from ultrafast.types import TokenDelta

Messages = list[dict[str, str]]


class ScriptedEngine:
    """Answers with the deltas it was given; an exception among them is raised in its place."""

    def __init__(self, *answers: list[str | BaseException]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Messages, dict[str, Any]]] = []

    def stream(self, messages: Messages, **sampling: Any) -> Iterator[TokenDelta]:
        self.asked.append((messages, sampling))
        for item in self.answers.pop(0):
            if isinstance(item, BaseException):
                raise item
            yield TokenDelta(item, range(len(item.split())))


def conversation(*answers: list[str | BaseException], system: str | None = None, **sampling: Any) -> chat.Conversation:
    return chat.Conversation(ScriptedEngine(*answers), system, **sampling)  # type: ignore[arg-type]


def type_in(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    keys = iter(lines)

    def read(prompt: str) -> str:
        try:
            return next(keys)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)


def test_the_model_sees_what_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    talk = conversation(["Hello ", "you."], ["Fine."], system="Be kind.", seed=3)
    talk.ask("Hi")
    talk.ask("How are you?")
    (first, _), (second, sampling) = talk._engine.asked  # type: ignore[attr-defined]
    assert first == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    assert second[2:] == [
        {"role": "assistant", "content": "Hello you."},
        {"role": "user", "content": "How are you?"},
    ]
    assert sampling == {"seed": 3}
    out, err = capsys.readouterr()
    assert out == "Hello you.\nFine.\n"
    assert err.splitlines()[0].startswith("[2 tokens, ")


def test_a_cut_answer_is_kept_and_the_talk_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = conversation(["Once upon", KeyboardInterrupt()], ["The end."])
    type_in(monkeypatch, "Tell a story", "  ", "Go on")
    chat._converse(talk, "name")
    assert [message["content"] for message in talk.messages] == ["Tell a story", "Once upon", "Go on", "The end."]
    out, err = capsys.readouterr()
    assert out == "Once upon\nThe end.\n\n"
    assert "[cut]" in err


def test_a_refused_question_is_not_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    talk = conversation(["Yes."], [PromptTooLong("too long")], ["Again."])
    type_in(monkeypatch, "One?", "Two?", "Three?", "/quit", "never read")
    chat._converse(talk, "name")
    assert [message["content"] for message in talk.messages] == ["One?", "Yes.", "Three?", "Again."]
    assert "too long (/reset forgets" in capsys.readouterr().err


def test_reset_forgets_all_but_the_system_message(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = conversation(["Yes."], ["No."], system="Be brief.")
    type_in(monkeypatch, "One?", "/reset", "Two?")
    chat._converse(talk, "name")
    messages, _ = talk._engine.asked[1]  # type: ignore[attr-defined]
    assert [message["content"] for message in messages] == ["Be brief.", "Two?"]


def test_an_unknown_command_is_not_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    talk = conversation()
    type_in(monkeypatch, "/help me")
    chat._converse(talk, "name")
    assert talk.messages == []
    assert "no command /help; there are /reset" in capsys.readouterr().err


def test_an_interrupt_at_the_prompt_ends_the_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(prompt: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    with pytest.raises(KeyboardInterrupt):
        chat._converse(conversation(), "name")
    assert capsys.readouterr().out == "\n"


def test_speed_leaves_out_the_first_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([10.0, 10.25, 10.5, 11.25])
    monkeypatch.setattr(chat.time, "perf_counter", lambda: next(moments))
    speed = chat.Speed()
    for tokens in (4, 8, 42):
        speed.count(tokens)
    assert str(speed) == "[54 tokens, 50 tokens/s, first after 250 ms]"
