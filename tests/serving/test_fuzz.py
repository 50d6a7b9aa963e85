"""Ten thousand fuzzed bodies: no crash, no hang, no 500, nothing left behind."""

from __future__ import annotations

import asyncio

from support.asgi import client_of
from support.fuzz import fuzz
from support.scripted_engine import ScriptedEngine

NUM_BODIES = 10_000


def test_ten_thousand_bodies() -> None:
    async def main() -> None:
        async with client_of(ScriptedEngine("Hi 🚀! 🇨🇭", num_slots=8)) as client:
            statuses = await fuzz(client, "scripted", num_bodies=NUM_BODIES, seed=1)
            assert sum(statuses.values()) == NUM_BODIES
            assert min(statuses[200], statuses[400]) > NUM_BODIES // 5, f"one-sided: {statuses}"

    asyncio.run(main())
