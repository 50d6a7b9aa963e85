"""What must hold of every stream of a response, whatever is in it."""

from __future__ import annotations

from typing import Any

_LIFECYCLE = {
    "response.created",
    "response.in_progress",
    "response.completed",
    "response.incomplete",
    "response.failed",
}
TERMINAL = _LIFECYCLE - {"response.created", "response.in_progress"}


def check_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Check order, numbers and identities of the events; returns the final response."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event["type"] in TERMINAL for event in events] == [False] * (len(events) - 1) + [True]
    responses = [event["response"] for event in events if event["type"] in _LIFECYCLE]
    assert len({response["id"] for response in responses}) == 1
    assert len({response["service_tier"] for response in responses}) == 1
    for response in responses[:2]:
        assert (response["status"], response["output"], response["usage"]) == ("in_progress", [], None)
    items = _items([event for event in events if event["type"] not in _LIFECYCLE and event["type"] != "error"])
    assert responses[-1]["output"] == items
    return responses[-1]


def _items(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items that the events make; each whole before the next begins."""
    done: list[dict[str, Any]] = []
    while events:
        index = len(done)
        assert all(event["output_index"] == index for event in events[:1])
        end = next(at for at, event in enumerate(events) if event["type"] == "response.output_item.done")
        added, *inner, last = events[: end + 1]
        assert added["type"] == "response.output_item.added"
        assert added["item"]["status"] == "in_progress"
        assert {event["output_index"] for event in [added, *inner, last]} == {index}
        item = last["item"]
        assert all(item[name] == added["item"][name] for name in ("id", "type"))
        assert all(event["item_id"] == item["id"] for event in inner)
        if item["type"] == "function_call":
            _check_call(added["item"], inner, item)
        else:
            _check_text(added["item"], inner, item)
        done.append(item)
        events = events[end + 1 :]
    return done


def _check_call(added: dict[str, Any], inner: list[dict[str, Any]], item: dict[str, Any]) -> None:
    assert (added["call_id"], added["name"], added["arguments"]) == (item["call_id"], item["name"], "")
    if item["status"] == "completed":
        last = inner.pop()
        assert last["type"] == "response.function_call_arguments.done"
        assert (last["name"], last["arguments"]) == (item["name"], item["arguments"])
    assert {event["type"] for event in inner} <= {"response.function_call_arguments.delta"}
    assert "".join(event["delta"] for event in inner) == item["arguments"]


def _check_text(added: dict[str, Any], inner: list[dict[str, Any]], item: dict[str, Any]) -> None:
    name = {"message": "response.output_text", "reasoning": "response.reasoning_text"}[item["type"]]
    assert added["content"] == []
    begin, *deltas, text_done, part_done = inner
    assert begin["type"] == "response.content_part.added"
    assert begin["part"]["text"] == ""
    assert {event["type"] for event in deltas} <= {f"{name}.delta"}
    assert text_done["type"] == f"{name}.done"
    assert part_done["type"] == "response.content_part.done"
    assert {event["content_index"] for event in inner} == {0}
    assert item["content"] == [part_done["part"]]
    assert "".join(event["delta"] for event in deltas) == text_done["text"] == part_done["part"]["text"]
    if item["type"] == "message":
        logprobs = [entry for event in deltas for entry in event["logprobs"]]
        assert logprobs == text_done["logprobs"] == part_done["part"]["logprobs"]
