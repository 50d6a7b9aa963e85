"""How long prompts must be: asked of the endpoint itself, with the shortest prompt there is and a longer one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ultrafast.bench.client.call import Ask
from ultrafast.bench.client.client import Client
from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.endpoint import Endpoint
from ultrafast.bench.load.material import Category
from ultrafast.bench.load.prompts import Gauge, Writer
from ultrafast.errors import ServerError

_NUMBER = 1 << 41  # of its prompts, which are none of the run's
_AT_LEAST, _AT_MOST = 256, 2048  # tokens of the longer one: enough to tell, and no long wait


def gauge_of(
    endpoint: Endpoint, clock: RunClock, category: Category, *, seed: int, tokens: Sequence[int], timeout_s: float
) -> Gauge:
    """What prompts of about these lengths need; a guess where the endpoint does not count the prompt.

    Raises:
        ServerError: the endpoint does not answer these calls.
    """
    return asyncio.run(_gauge_of(endpoint, clock, Writer(category, Gauge(), seed), tokens, timeout_s))


async def _gauge_of(
    endpoint: Endpoint, clock: RunClock, writer: Writer, tokens: Sequence[int], timeout_s: float
) -> Gauge:
    lengths = (1, min(max(*tokens, _AT_LEAST), _AT_MOST))
    found = []
    async with Client(endpoint, clock, timeout_s=timeout_s) as client:
        for number, length in enumerate(lengths, _NUMBER):
            prompt = writer.prompt(number, length)
            call = await client.call(Ask(prompt, max_tokens=16, temperature=0.0), id=f"calibrate-{number}")
            if not call.is_ok:
                problem = f"{endpoint.base_url} did not answer a first call ({endpoint.name}): {call.error}"
                raise ServerError(problem, "nothing was measured")
            if call.prompt_tokens is None:
                return Gauge()
            found.append((len(prompt), call.prompt_tokens))
    return Gauge.of(*found)
