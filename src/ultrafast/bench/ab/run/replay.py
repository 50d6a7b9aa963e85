"""Recorded requests, sent again step by step: both arms get the same context, wherever their answers lead."""

from __future__ import annotations

import asyncio
import time

import aiohttp
import msgspec

from ultrafast.bench.ab.gateway.answer import text_of
from ultrafast.bench.ab.run.inputs import path_of, steps_of
from ultrafast.bench.ab.run.records import Ended
from ultrafast.bench.ab.run.workflow import Job, Result

_TAKE_SEEDS = ("chat/completions", "completions")


async def replay(job: Job) -> Result:
    """The steps of the task, one after another, streamed; the output is the text of the answers, a JSON string a line.

    A step that is refused ends it.
    """
    start = time.monotonic()
    answers: list[bytes] = []
    ended: Ended = "done"
    error = None
    try:
        async with asyncio.timeout(job.timeout_s), aiohttp.ClientSession() as client:
            for number, body in enumerate(steps_of(job.task), 1):
                status, raw = await _send(client, job, body)
                answers.append(msgspec.json.encode(text_of(raw)))
                if status >= 400:
                    ended, error = "failed", f"step {number}: status {status}"
                    break
    except TimeoutError:
        ended, error = "timeout", f"stopped after {job.timeout_s:g} s"
    except aiohttp.ClientError as problem:
        ended, error = "failed", f"step {len(answers) + 1}: {problem or type(problem).__name__}"[:300]
    return Result(start, time.monotonic() - start, ended, error=error, output=b"\n".join(answers))


async def _send(client: aiohttp.ClientSession, job: Job, body: dict[str, object]) -> tuple[int, bytes]:
    path = path_of(body) or ""
    whole: dict[str, object] = {**({"seed": job.seed} if path in _TAKE_SEEDS else {}), **body, "stream": True}
    headers = {"Authorization": f"Bearer {job.environment()['OPENAI_API_KEY']}"}
    async with client.post(
        f"{job.base_url}/{path}", json=whole, headers=headers, timeout=aiohttp.ClientTimeout(total=None)
    ) as response:
        return response.status, await response.read()
