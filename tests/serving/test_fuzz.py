"""Ten thousand fuzzed bodies: no crash, no hang, no 500, nothing left behind."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from support.asgi import Answer, Client, client_of
from support.fuzz import CHAT, RESPONSES, fuzzed
from support.scripted_engine import ScriptedEngine

NUM_BODIES = 10_000
AT_ONCE = 20
LIMIT_S = 10.0  # for one answer


def check(answer: Answer) -> None:
    """Whole, and in the API's shape."""
    assert answer.status in (200, 400, 404), (answer.status, answer.body[:500])
    if answer.status != 200:
        assert answer.error["message"]
        assert answer.error["type"] == "invalid_request_error"
    elif answer.headers["content-type"].startswith("text/event-stream"):
        name, data = answer.events()[-1]
        assert data == "[DONE]" or name in ("response.completed", "response.incomplete")
    else:
        assert answer.json()["usage"]["total_tokens"]


async def fuzz(client: Client, model: str, *, num_bodies: int, seed: int) -> Counter[int]:
    """Send the bodies, a few at once; returns how often each status came."""
    statuses: Counter[int] = Counter()
    numbers = iter(range(num_bodies))

    async def sender() -> None:
        for number in numbers:
            rng = random.Random(f"{seed} {number}")
            path = rng.choice([CHAT, RESPONSES])
            body = fuzzed(path, model, rng)
            try:
                async with asyncio.timeout(LIMIT_S):
                    answer = await client.post(path, body)
                check(answer)
            except BaseException as error:
                error.add_note(f"body {number} to {path}: {body[:2000]!r}")
                raise
            statuses[answer.status] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(sender())
    stats = client.app.state.engine_loop.stats()
    assert stats["running"] == stats["waiting"] == 0
    assert stats["free_blocks"] == stats["num_blocks"]
    return statuses


def test_ten_thousand_bodies() -> None:
    async def main() -> None:
        async with client_of(ScriptedEngine("Hi 🚀! 🇨🇭", num_slots=8)) as client:
            statuses = await fuzz(client, "scripted", num_bodies=NUM_BODIES, seed=1)
            assert sum(statuses.values()) == NUM_BODIES
            assert min(statuses[200], statuses[400]) > NUM_BODIES // 5, f"one-sided: {statuses}"

    asyncio.run(main())
