"""The conversations of the agent's benchmark: the same both ways, and only one of them is sent again each turn."""

from __future__ import annotations

import http.client

from websockets.sync.client import connect

import agent_socket
from support.marked_chat import marked_engine
from support.served import served


def test_both_ways_hold_the_same_conversation() -> None:
    engine = marked_engine('<call search>{"topic": "tide", "page": 1}</call>')
    engine.max_context = 1 << 20
    with (
        served(engine) as server,
        connect(f"ws://127.0.0.1:{server.port}/v1/responses", compression=None) as socket,
    ):
        web = http.client.HTTPConnection("127.0.0.1", server.port)
        result = agent_socket.Result("scripted", 16, tool_ms=0.0)
        agent_socket.measure(socket, web, 2, result)
        web.close()
    planned = [[message["role"] for message in plan.messages] for plan in engine.chat.planned]
    conversation = [["system", "user", *["assistant", "tool"] * turn] for turn in range(agent_socket.TURNS)]
    assert planned == conversation * 6
    assert [len(held) for held in (result.socket, result.http)] == [2, 2]
    for held, other in zip(result.socket, result.http, strict=True):
        assert held.answers == other.answers == ['{"topic": "tide", "page": 1}'] * agent_socket.TURNS
        assert held.prompt_tokens == other.prompt_tokens
        assert all(first > 0 for first in held.first_s)
    assert "10 of them with tool calls" in result.report()
