"""A model for tests of agents that calls what it is made to call, on a clock of its own: no server, no waiting."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ultrafast.bench.agent.ways import Arm, Way
from ultrafast.bench.client.call import Ask, Call, Outcome, ServerTimes, ToolCall
from ultrafast.bench.client.endpoint import Endpoint, Price

Change = Callable[[Call], Call]


class ManualClock:
    """Time passes only when told to."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def now(self) -> float:
        return self.time_s


class ObedientModel:
    """Answers each request with a note, or with the call that it must make and the one value of each parameter.

    Args:
        changes: what becomes of the answers to requests of these numbers, from 0.
        states_times: tells 0.25 s of queue, 0.5 s of prefill and a second a token, and takes 0.25 s more.
    """

    def __init__(
        self,
        clock: ManualClock,
        *,
        seconds_a_token: float = 0.01,
        changes: Mapping[int, Change] | None = None,
        states_times: bool = True,
    ) -> None:
        self.asked: list[Ask] = []
        self._clock = clock
        self._seconds = seconds_a_token
        self._changes = changes or {}
        self._states_times = states_times

    async def call(self, ask: Ask, *, id: str, intended_s: float | None = None) -> Call:
        number = len(self.asked)
        self.asked.append(ask)
        name = ask.tool_choice["function"]["name"] if isinstance(ask.tool_choice, Mapping) else None
        tokens = 20 if name else ask.max_tokens or 5
        start = self._clock.now()
        self._clock.time_s += 1.0 + self._seconds * tokens
        call = Call(
            id,
            ask.tags,
            None,
            start if intended_s is None else intended_s,
            sent_s=start + 0.125,
            first_token_s=start + 1.0,
            last_token_s=self._clock.now(),
            done_s=self._clock.now(),
            status=200,
            tier_served="default",
            response_id=f"resp_{number}",
            prompt_tokens=100,
            cached_tokens=50,
            output_tokens=tokens,
            text="" if name else "A note.",
            tool_calls=[ToolCall(f"call_{number}", name, _arguments(ask, name))] if name else [],
        )
        if self._states_times:
            call = replace(call, server=ServerTimes(0.25, 0.5, self._seconds * tokens, 10, 5))
        return self._changes[number](call) if number in self._changes else call


def _arguments(ask: Ask, name: str) -> str:
    tool: dict[str, Any] = next(t["function"] for t in ask.tools if t["function"]["name"] == name)  # type: ignore[assignment]
    return json.dumps({key: value["enum"][0] for key, value in tool["parameters"]["properties"].items()})


def arm(way: Way = Way.CHAT, *, tier: str | None = None, takes_salt: bool = True) -> Arm:
    endpoint = Endpoint("http://127.0.0.1:1/v1", "m", way.api, tier, price=Price(1.0, 2.0, 0.5))
    return Arm(endpoint, way, takes_salt)


def calls(*tools: tuple[str, str]) -> Change:
    """The answer has these calls: names and arguments."""
    return lambda call: replace(
        call, tool_calls=[ToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(tools)]
    )


def says(text: str) -> Change:
    return lambda call: replace(call, text=text, tool_calls=[])


def breaks(call: Call) -> Call:
    return replace(call, outcome=Outcome.BROKEN, error="the server went away", text="", tool_calls=[])
