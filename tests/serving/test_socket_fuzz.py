"""Five thousand fuzzed frames: no crash, no 500, the right close codes, nothing left behind, and service goes on."""

from __future__ import annotations

import json
import random
import socket
import struct
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from websockets.frames import Opcode

from support.fuzz import RESPONSES, mutate_bytes, mutate_value, valid_body
from support.response_events import TERMINAL
from support.scripted_engine import ScriptedEngine
from support.served import served
from support.socket_client import RawSocket, leave_no_trace

NUM_EVENTS = 4000
NUM_RAW = 1000
ENDS = TERMINAL | {"error", "response.steer.failed"}


def frame(first: int, payload: bytes, *, masked: bool = True, length: int | None = None) -> bytes:
    """A frame as bytes, by the rules or not. ``length`` is the one announced."""
    length = len(payload) if length is None else length
    mask = 0x80 if masked else 0
    if length < 126:
        head = struct.pack("!BB", first, mask | length)
    elif length < 1 << 16:
        head = struct.pack("!BBH", first, mask | 126, length)
    else:
        head = struct.pack("!BBQ", first, mask | 127, length)
    return head + (bytes(4) if masked else b"") + payload  # a mask of zeros


def close_code(client: RawSocket) -> int | None:
    """The code of the server's close frame, or None if the connection ends without one."""
    code = None
    with suppress(ConnectionError):
        for last in client.frames():
            if last.opcode is Opcode.CLOSE:
                code = struct.unpack(">H", last.data[:2])[0] if last.data else 1005
    return code


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(0x81, b"{}", masked=False), 1002),
        (frame(0x83, b"{}"), 1002),  # a reserved kind of frame
        (frame(0xC1, b"{}"), 1002),  # compressed, which was not agreed
        (frame(0x91, b"{}"), 1002),
        (frame(0x80, b"{}"), 1002),  # a continuation of nothing
        (frame(0x01, b"{") + frame(0x81, b"{}"), 1002),
        (frame(0x09, b""), 1002),  # a ping in fragments
        (frame(0x89, b"x" * 126), 1002),
        (frame(0x88, b"x"), 1002),
        (frame(0x88, struct.pack(">H", 1005)), 1002),
        (frame(0x88, struct.pack(">H", 999)), 1002),
        (frame(0x88, struct.pack(">H", 1000) + b"\xff"), 1007),
        (frame(0x88, struct.pack(">H", 1000)), 1000),
        (frame(0x88, struct.pack(">H", 4321) + "bye 👋".encode()), 4321),
        (frame(0x88, b""), 1005),
        (frame(0x81, b"\xff"), 1007),
        (frame(0x81, "é".encode()[:1]), 1007),
        (frame(0x01, b"\xed\xa0") + frame(0x80, b"\x80"), 1007),
        (frame(0x81, b"", length=(64 << 20) + 1), 1009),
        (frame(0x82, b"", length=(1 << 63) - 1), 1009),
        (frame(0x01, b"x" * 10) + frame(0x80, b"", length=(64 << 20) - 9), 1009),
        (frame(0x81, b"{}", length=1 << 63), 1009),
    ],
)
def test_the_code_of_the_close_says_what_is_wrong(sent: bytes, code: int) -> None:
    with served(ScriptedEngine("Fine.")) as server:
        with RawSocket(server.port) as client:
            client.socket.sendall(sent)
            assert close_code(client) == code
        leave_no_trace(server)


def test_characters_may_be_cut_anywhere() -> None:
    text = json.dumps({"type": "response.create", "model": "scripted", "input": "🚀é"}, ensure_ascii=False).encode()
    with served(ScriptedEngine("Fine.")) as server, RawSocket(server.port) as client:
        client.send_in_pieces(text, list(range(1, len(text))))
        kinds = [json.loads(event.data)["type"] for _, event in zip(range(9), client.frames(), strict=False)]
        assert kinds[-1] == "response.completed"
        assert bytes(server.loop.engine.requests[0].prompt_ids).decode() == "<user>🚀é"  # type: ignore[attr-defined]


def event_bytes(rng: random.Random) -> bytes:
    """A client's event, gone wrong in up to three ways."""
    event: Any = valid_body(RESPONSES, "scripted", rng) | {
        "type": rng.choice(["response.create"] * 8 + ["response.steer", "session.update"]),
        "stream_id": rng.choice([None, "main", "side", "a" * 256, "a" * 300, ""]),
        "generate": rng.choice([None, True, True, False]),
        "store": rng.choice([None, True, False]),
    }
    for _ in range(rng.choice([0, 0, 1, 2, 3])):
        event = mutate_value(event, rng)
    raw = json.dumps(event, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    return mutate_bytes(raw, rng) if rng.random() < 0.2 else raw


def test_four_thousand_events() -> None:
    """Each gets exactly one end, whatever is wrong with it; text that is no text ends the connection with 1007."""
    ends: Counter[Any] = Counter()
    with served(ScriptedEngine("Hi 🚀!", num_slots=8)) as server:
        client = RawSocket(server.port)
        answers = client.frames()
        for number in range(NUM_EVENTS):
            rng = random.Random(f"events {number}")
            raw = event_bytes(rng)
            cuts = sorted(rng.randrange(len(raw) + 1) for _ in range(rng.choice([0, 0, 0, 1, 5])))
            client.send_in_pieces(raw, cuts)
            for answer in answers:
                if answer.opcode is Opcode.CLOSE:
                    with pytest.raises(UnicodeDecodeError):
                        raw.decode()
                    assert answer.data[:2] == struct.pack(">H", 1007)
                    client.socket.close()
                    client = RawSocket(server.port)
                    answers = client.frames()
                    ends[1007] += 1
                    break
                event = json.loads(answer.data)
                if event["type"] in ENDS and not (event["type"] == "error" and "status" not in event):
                    assert event.get("status", 400) in (400, 404, 408, 429), (raw, event)
                    assert "stream_id" not in event or event["stream_id"] in raw.decode()
                    ends[event["type"]] += 1
                    break
            else:
                raise AssertionError(f"closed without a word after {raw!r}")
        client.socket.close()
        leave_no_trace(server)
    assert sum(ends.values()) == NUM_EVENTS
    assert min(ends["error"], ends["response.completed"] + ends["response.incomplete"]) > NUM_EVENTS // 10, ends
    assert min(ends[1007], ends["response.steer.failed"]) > NUM_EVENTS // 100, ends


def raw_bytes(rng: random.Random) -> bytes:
    """Frames, some broken, some mere noise."""
    pieces = []
    for _ in range(rng.randint(1, 4)):
        payload = rng.choice([b"", b"{}", rng.randbytes(rng.randrange(200)), event_bytes(rng)])
        sound = frame(rng.choice([0x81, 0x81, 0x82, 0x01, 0x80, 0x89, 0x8A, 0x88]), payload)
        broken = frame(rng.randrange(256), payload, masked=rng.random() < 0.7)
        lying = frame(0x81, payload, length=rng.choice([0, 1, 125, 126, 65535, 65536, 1 << 27, (1 << 63) - 1]))
        pieces.append(rng.choice([sound, sound, broken, lying, mutate_bytes(sound, rng), rng.randbytes(30)]))
    return b"".join(pieces)


def test_a_thousand_broken_streams() -> None:
    codes: Counter[Any] = Counter()
    with served(ScriptedEngine("Hi 🚀!", num_slots=8)) as server:
        for number in range(NUM_RAW):
            rng = random.Random(f"raw {number}")
            with RawSocket(server.port) as client, suppress(ConnectionError):
                client.socket.sendall(raw_bytes(rng))
                client.socket.shutdown(socket.SHUT_WR)
                codes[close_code(client)] += 1
        leave_no_trace(server)
    sent_by_clients = {code for code in codes if code is not None and (code == 1000 or code == 1005 or code >= 3000)}
    assert set(codes) - sent_by_clients <= {None, 1002, 1007, 1009}, codes
    assert codes[1002] > NUM_RAW // 10, codes
