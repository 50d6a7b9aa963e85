"""Computing what the next turn of a conversation is sure to begin with, while the client is busy with its tools.

Between two turns a chat template writes the same tokens whatever comes next: the end of the answer, the head of a
tool's result. A client that keeps a connection open means to go on, so they are computed before it does. They are
leftover work, as ``flex`` is, and give way to everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import takewhile

from starlette.requests import HTTPConnection

from ultrafast.engine.loop import EngineLoop, TokenStream
from ultrafast.engine.tiers import FLEX
from ultrafast.errors import RequestError
from ultrafast.serving.generate import Job, prompt_of
from ultrafast.serving.isolation import cache_domain
from ultrafast.types import GenerateRequest, SamplingParams


async def compute_shared_start(
    connection: HTTPConnection, loop: EngineLoop, jobs: Sequence[Job], *, request_id: str
) -> TokenStream | None:
    """Have the engine put into its cache what the prompts of all ``jobs`` begin with; None: there is no room now.

    Args:
        connection: whose cache it is for.
        loop: of the model.
        jobs: of one tier and salt; at least two that differ in all that is not sure.
        request_id: what whoever watches the engine knows it by.

    Raises:
        RequestError: the prompts cannot be made or do not fit.
    """
    if not loop.admission.room(FLEX).remaining:
        return None
    start = await asyncio.to_thread(_shared_start, loop, jobs)
    domain = cache_domain(connection, tier=jobs[0].tier, salt=jobs[0].cache_salt)
    # One token is asked for, because a prompt alone is no request; nobody reads it.
    request = GenerateRequest(start, SamplingParams(max_tokens=1), FLEX, cache_salt=domain, id=request_id)
    return await loop.submit(request)


def _shared_start(loop: EngineLoop, jobs: Sequence[Job]) -> list[int]:
    columns = zip(*(prompt_of(loop, job) for job in jobs), strict=False)
    start = [tokens[0] for tokens in takewhile(lambda tokens: len(set(tokens)) == 1, columns)]
    if not start:
        raise RequestError("the prompts share no token", param="prompt")
    return start
