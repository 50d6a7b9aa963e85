"""An agent's turns: over one WebSocket, each continuing the last, beside HTTP with the whole conversation every time.

The same conversation is held both ways, in turns: the model is made to call a tool, is given what the tool found, and
so on. It is greedy, so both ways have the same answers; each has a cache of its own. A turn's first token is its first
event with something of the answer in it.

    make bench-agent ARGS="--json agent.json"
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from served import served

TURNS = 10
MAX_OUTPUT_TOKENS = 48
_TEXT = {"type": "string", "maxLength": 20}
_NUMBER = {"type": "integer"}


def _tool(name: str, description: str, **parameters: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters, "required": list(parameters), "additionalProperties": False}
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": True}


INSTRUCTIONS = (
    "You keep the notes of the harbour. Work in small steps: search before you answer, open what you found, and write "
    "down what others will need. Never make a note up. When a note is missing, search for another word of the same "
    "meaning. Dates are written year first. Berths have a letter and a number, cranes a number alone."
)
TOOLS = [
    _tool("search", "Search the notes of the harbour, newest first.", topic=_TEXT, page=_NUMBER),
    _tool("open_note", "Read one note that a search has found, with what was written about it since.", id=_NUMBER),
    _tool("write_note", "Write a new note, for those who come after you.", title=_TEXT, text=_TEXT, berth=_TEXT),
    _tool("list_ships", "The ships that are expected on a day, and where they will lie.", year=_NUMBER, day=_NUMBER),
    _tool("call_pilot", "Ask a pilot to meet a ship at the outer buoy.", ship=_TEXT, hour=_NUMBER),
]
_WORDS = (
    "harbour",
    "crane",
    "tide",
    "ledger",
    "signal",
    "warehouse",
    "pilot",
    "cargo",
    "buoy",
    "quay",
    "storm",
    "rope",
)
_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")

Ask = Callable[[dict[str, Any]], Iterable[dict[str, Any]]]
"""Sends the fields of a request and brings the events of its response."""


@dataclass
class Conversation:
    """Of each turn: seconds to its first token and to its end, tokens of its prompt, calls, and what came out."""

    first_s: list[float] = field(default_factory=list)
    turn_s: list[float] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    cached_tokens: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)


@dataclass
class Result:
    """Conversations by round; all have the same words."""

    model: str
    found_words: int
    tool_ms: float
    socket: list[Conversation] = field(default_factory=list)
    http: list[Conversation] = field(default_factory=list)

    def report(self) -> str:
        """Medians and least times, and what the two ways have to do with each other."""
        last = self.socket[-1]
        lines = [
            f"{self.model}, {len(self.socket)} conversations of {TURNS} turns, "
            f"{sum(map(bool, last.calls))} of them with tool calls, which take {self.tool_ms:g} ms and are not counted",
            f"prompt of turn {TURNS}: {last.prompt_tokens[-1]} tokens, {last.cached_tokens[-1]} of them cached",
            f"{'ms, median (least)':32}{'WebSocket':>18}{'HTTP':>18}{'ratio':>16}",
        ]
        early, late = _by_turn(self, "first_s", 1), _by_turn(self, "first_s", TURNS - 1)
        lines.append(_line("first token of turn 2", *early))
        lines.append(_line(f"first token of turn {TURNS}", *late))
        lines.append(_line(f"all {TURNS} turns", *map(_whole, (self.socket, self.http))))
        growth = (
            f"{name} {_median_ratio(b, a):.2f}" for name, a, b in zip(("WebSocket", "HTTP"), early, late, strict=True)
        )
        lines.append(f"first token, turn {TURNS} / turn 2: {', '.join(growth)}")
        return "\n".join(lines)


@dataclass
class _Times:
    """Samples by round, and the least that they could have been."""

    samples: list[float]
    least: float

    def __str__(self) -> str:
        return f"{statistics.median(self.samples) * 1e3:,.1f} ({self.least * 1e3:,.1f})"


def _by_turn(result: Result, name: str, turn: int) -> list[_Times]:
    ways = ([getattr(held, name)[turn] for held in way] for way in (result.socket, result.http))
    return [_Times(samples, min(samples)) for samples in ways]


def _whole(way: list[Conversation]) -> _Times:
    return _Times(
        [sum(held.turn_s) for held in way],
        sum(min(held.turn_s[turn] for held in way) for turn in range(TURNS)),
    )


def _median_ratio(a: _Times, b: _Times) -> float:
    return statistics.median(x / y for x, y in zip(a.samples, b.samples, strict=True))


def _line(title: str, socket: _Times, over_http: _Times) -> str:
    ratio = f"{_median_ratio(socket, over_http):.3f} ({socket.least / over_http.least:.3f})"
    return f"{title:32}{socket!s:>18}{over_http!s:>18}{ratio:>16}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="known name or GGUF file (default: %(default)s)")
    parser.add_argument("--threads", type=int, metavar="N", help="workers (default: one per physical core)")
    parser.add_argument(
        "--found",
        type=int,
        default=16,
        metavar="N",
        help="words that a tool finds, about 2.4 tokens each (default: %(default)s)",
    )
    parser.add_argument(
        "--tool-ms", type=float, default=50.0, metavar="MS", help="what a tool takes (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=9, metavar="N", help="rounds (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    arguments = parser.parse_args()
    with served(arguments.model, arguments.threads) as port:
        web = http.client.HTTPConnection("127.0.0.1", port)
        with connect(f"ws://127.0.0.1:{port}/v1/responses", compression=None, max_size=None) as socket:
            result = Result(_model(web), arguments.found, arguments.tool_ms)
            measure(socket, web, arguments.repeats, result)
    print(result.report())
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")
    return 0


def measure(socket: ClientConnection, web: http.client.HTTPConnection, repeats: int, result: Result) -> None:
    """One round that only warms up, then ``repeats`` that count; in every other one HTTP comes first."""
    for number in range(repeats + 1):
        print(f"round {number} of {repeats}" if number else "warming up", file=sys.stderr)
        for way in ("socket", "http") if number % 2 else ("http", "socket"):
            ask = _over(socket) if way == "socket" else _post(web)
            salt = f"{way} {number} {time.time()}"
            held = hold(
                ask,
                result.model,
                salt,
                found_words=result.found_words,
                tool_s=result.tool_ms / 1e3,
                continues=way == "socket",
            )
            if number:
                (result.socket if way == "socket" else result.http).append(held)
        if number and result.socket[-1].answers != result.http[-1].answers:
            raise SystemExit("agent_socket: the two ways had different answers, so their times say nothing")


def hold(ask: Ask, model: str, salt: str, *, found_words: int, tool_s: float, continues: bool) -> Conversation:
    """Hold one conversation.

    Args:
        salt: of its cache.
        found_words: length of what a tool finds.
        tool_s: how long it takes to find it; no part of a turn.
        continues: each turn sends only what is new, and the response that it continues; otherwise everything.
    """
    held = Conversation()
    rng = random.Random(0)
    new: list[dict[str, Any]] = [{"role": "user", "content": f"Find out about the {_words(rng, 8)}."}]
    history: list[dict[str, Any]] = []
    previous: str | None = None
    for _ in range(TURNS):
        fields = {
            "model": model,
            "input": new if continues else [*history, *new],
            "previous_response_id": previous,
            "store": False,
            "instructions": INSTRUCTIONS,
            "tools": TOOLS,
            "tool_choice": "required",
            "service_tier": "ultrafast",  # whose users agents are
            "parallel_tool_calls": False,
            "temperature": 0,
            "max_output_tokens": MAX_OUTPUT_TOKENS,
            "cache_salt": salt,
        }
        response = _turn(ask(fields), held)
        history += [*new, *response["output"]]
        new = _found(response["output"], _words(rng, found_words))
        previous = response["id"] if continues else None
        time.sleep(tool_s)
    return held


def _turn(events: Iterable[dict[str, Any]], held: Conversation) -> dict[str, Any]:
    start = time.perf_counter()
    first = 0.0
    for event in events:
        if not first and event["type"] == "response.output_item.added":
            first = time.perf_counter()
    held.turn_s.append(time.perf_counter() - start)
    if event["type"] not in ("response.completed", "response.incomplete"):
        raise SystemExit(f"agent_socket: {json.dumps(event)}")
    response: dict[str, Any] = event["response"]
    held.first_s.append(first - start)
    held.cached_tokens.append(response["usage"]["input_tokens_details"]["cached_tokens"])
    held.prompt_tokens.append(response["usage"]["input_tokens"])
    held.calls.append(len(_whole_calls(response["output"])))
    held.answers.append("".join(map(_said, response["output"])))
    return response


def _found(output: list[dict[str, Any]], found: str) -> list[dict[str, Any]]:
    """What the tools found; what the user says to an answer without a whole call."""
    calls = [item for item in output if item["type"] == "function_call" and item["status"] == "completed"]
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": found} for call in calls] or [
        {"role": "user", "content": f"I have found {found}. Go on."}
    ]


def _whole_calls(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in output if item["type"] == "function_call" and item["status"] == "completed"]


def _said(item: dict[str, Any]) -> str:
    text: str = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
    return text


def _words(rng: random.Random, count: int) -> str:
    return " ".join(f"{rng.choice(_WORDS)} {rng.randrange(100)}" for _ in range(count // 2))


def _over(socket: ClientConnection) -> Ask:
    def ask(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        socket.send(json.dumps({"type": "response.create", **fields}))
        event: dict[str, Any] = {"type": ""}
        while event["type"] not in _ENDS:
            event = json.loads(socket.recv())
            yield event

    return ask


def _post(web: http.client.HTTPConnection) -> Ask:
    def ask(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        body = json.dumps({"stream": True, **fields})
        web.request("POST", "/v1/responses", body, {"Content-Type": "application/json"})
        answer = web.getresponse()
        if answer.status != 200:
            raise SystemExit(f"agent_socket: the server answered {answer.status}: {answer.read().decode()}")
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    return ask


def _model(web: http.client.HTTPConnection) -> str:
    web.request("GET", "/v1/models")
    name: str = json.loads(web.getresponse().read())["data"][0]["id"]
    return name


if __name__ == "__main__":
    sys.exit(main())
