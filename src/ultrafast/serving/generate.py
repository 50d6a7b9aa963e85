"""From a parsed request to running streams: what Chat Completions and Responses share."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from starlette.requests import Request

from ultrafast.engine.loop import EngineLoop, TokenStream
from ultrafast.errors import RequestError
from ultrafast.serving.isolation import cache_domain
from ultrafast.types import GenerateRequest, Message, SamplingParams

LARGE_BODY = 8 * 1024  # bytes; from here on rendering and tokenising (~1 ms) leave the event loop
_SEED_BITS = 63


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked of the engine, in its own terms.

    Attributes:
        messages: the conversation, content as strings.
        params: one entry a choice.
        tier: a concrete tier.
        overflow: what to do when it is full; None: as it is configured.
        prediction: text that the answer probably has.
        cache_salt: of the client.
        deadline_s: from now on.
        fields: the engine's names of fields → the wire's, for errors.
    """

    messages: Sequence[Message]
    params: Sequence[SamplingParams]
    tier: str
    fields: Mapping[str, str]
    overflow: str | None = None
    prediction: str = ""
    cache_salt: str = ""
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """The streams of a job, one a choice, and the event that tells of news in any of them."""

    streams: list[TokenStream]
    news: asyncio.Event

    @property
    def tier(self) -> str:
        """The tier that serves."""
        return self.streams[0].tier

    @property
    def headers(self) -> dict[str, str]:
        """What every answer tells about its tiers."""
        tiers = self.streams[0].tiers
        return {"x-ultrafast-tier": tiers.admitted, "x-ultrafast-tier-asked": tiers.asked}


def loop_of(loops: Mapping[str, EngineLoop], model: str) -> EngineLoop:
    """The loop that serves ``model``, or 404."""
    loop = loops.get(model)
    if loop is None:
        served = ", ".join(repr(name) for name in loops)
        raise RequestError(
            f"The model {model[:128]!r} does not exist here; this server has {served}.",
            status=404,
            code="model_not_found",
            param="model",
        )
    return loop


def choices(params: SamplingParams, *, n: int, seed: int | None) -> list[SamplingParams]:
    """One `SamplingParams` a choice: seeds count up from ``seed``, or from a random one."""
    first = secrets.randbits(_SEED_BITS) if seed is None else seed
    return [replace(params, seed=(first + index) % 2**_SEED_BITS) for index in range(n)]


async def run(request: Request, loop: EngineLoop, job: Job, *, body_size: int, whole: bool) -> Running:
    """Render, tokenise, check and submit; all choices or none.

    Args:
        request: that brought the job: its id is that of the engine's requests, and it says who they share caches with.
        loop: of the model.
        job: what to do.
        body_size: bytes that the job came in.
        whole: see `EngineLoop.submit_all`.

    Raises:
        RequestError: with the wire's name of the field at fault.
    """
    with _wire_names(job.fields):
        if body_size < LARGE_BODY:
            prompt_ids, prediction = _encode(loop, job)
        else:
            prompt_ids, prediction = await asyncio.to_thread(_encode, loop, job)
        domain = cache_domain(request, tier=job.tier, salt=job.cache_salt)
        requests = [
            GenerateRequest(
                prompt_ids,
                params,
                job.tier,
                overflow=job.overflow,
                prediction=prediction,
                cache_salt=domain,
                deadline_s=job.deadline_s,
                id=request.state.request_id,
            )
            for params in job.params
        ]
        news = asyncio.Event()
        return Running(await loop.submit_all(requests, news=news, whole=whole), news)


def _encode(loop: EngineLoop, job: Job) -> tuple[list[int], list[int]]:
    """Token ids of prompt and prediction; of the latter, no more than an answer can have."""
    engine = loop.engine
    prompt_ids = engine.encode_prompt(job.messages)
    if not job.prediction:
        return prompt_ids, []
    room = max(0, engine.max_context - len(prompt_ids))
    text = job.prediction[: room * engine.tokenizer.longest_token]  # what is longer takes long, and is of no use
    return prompt_ids, engine.tokenizer.encode(text)[:room]


@contextmanager
def _wire_names(fields: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except RequestError as error:
        if error.status == 400:
            param = error.param or "messages"  # what no field is blamed for is the prompt's
            error.param = fields.get(param, param)
            error.code = error.code or "invalid_value"
        raise
