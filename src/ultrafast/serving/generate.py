"""From a parsed request to running streams: what Chat Completions and Responses share."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ultrafast.engine.loop import EngineLoop, TokenStream
from ultrafast.errors import RequestError
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
        fields: the engine's names of fields → the wire's, for errors.
    """

    messages: Sequence[Message]
    params: Sequence[SamplingParams]
    tier: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Running:
    """The streams of a job, one a choice, and the event that tells of news in any of them."""

    streams: list[TokenStream]
    news: asyncio.Event

    @property
    def tier(self) -> str:
        """The tier that serves."""
        return self.streams[0].tier


def require_model(loop: EngineLoop, model: str) -> None:
    """Raise 404 unless ``model`` is the one served here."""
    if model != loop.engine.model_id:
        raise RequestError(
            f"The model {model[:128]!r} does not exist here; this server has {loop.engine.model_id!r}.",
            status=404,
            code="model_not_found",
            param="model",
        )


def choices(params: SamplingParams, *, n: int, seed: int | None) -> list[SamplingParams]:
    """One `SamplingParams` a choice: seeds count up from ``seed``, or from a random one."""
    first = secrets.randbits(_SEED_BITS) if seed is None else seed
    return [replace(params, seed=(first + index) % 2**_SEED_BITS) for index in range(n)]


async def run(loop: EngineLoop, job: Job, *, body_size: int, whole: bool) -> Running:
    """Render, tokenise, check and submit; all choices or none. ``whole``: see `EngineLoop.submit`.

    Raises:
        RequestError: with the wire's name of the field at fault.
    """
    with _wire_names(job.fields):
        encode = loop.engine.encode_prompt
        if body_size < LARGE_BODY:
            prompt_ids = encode(job.messages)
        else:
            prompt_ids = await asyncio.to_thread(encode, job.messages)
        running = Running([], asyncio.Event())
        try:
            for params in job.params:
                request = GenerateRequest(prompt_ids, params, job.tier)
                running.streams.append(await loop.submit(request, news=running.news, whole=whole))
        except BaseException:
            for stream in running.streams:
                stream.cancel()
            raise
        return running


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
