"""The process in which a user's Python function runs: ``python -m ultrafast.bench.ab.run.worker module:function``."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Context:
    """What the function is called with.

    Attributes:
        base_url: of an OpenAI-compatible API; requests there need no ``service_tier`` and no real key.
        task: the line of the tasks file.
        seed: the same in both arms.
    """

    base_url: str
    api_key: str
    model: str
    tier: str
    arm: str
    task: dict[str, Any]
    seed: int


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    env = os.environ
    context = Context(
        base_url=env["OPENAI_BASE_URL"],
        api_key=env["OPENAI_API_KEY"],
        model=env["ULTRAFAST_MODEL"],
        tier=env["ULTRAFAST_TIER"],
        arm=env["ULTRAFAST_ARM"],
        task=json.loads(sys.stdin.read()),
        seed=int(env["ULTRAFAST_SEED"]),
    )
    start = time.monotonic()
    said = function(context)
    if inspect.isawaitable(said):
        said = asyncio.run(_finish(said))
    seconds = time.monotonic() - start
    outcome = said if isinstance(said, dict) else {} if said is None else {"success": bool(said)}
    Path(env["ULTRAFAST_OUTCOME"]).write_text(json.dumps({"seconds": seconds, **outcome}))


async def _finish(awaitable: Any) -> Any:
    return await awaitable


if __name__ == "__main__":
    main()
