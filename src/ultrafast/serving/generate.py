"""From a parsed request to running streams: what Chat Completions and Responses share."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from starlette.requests import HTTPConnection

from ultrafast.chat.answer import AnswerParser, PlainParser
from ultrafast.engine.loop import EngineLoop, TokenStream
from ultrafast.errors import RequestError
from ultrafast.serving.isolation import cache_domain
from ultrafast.serving.rate_limits import rate_limits
from ultrafast.types import GenerateRequest, Message, OutputFormat, SamplingParams, Tool, ToolChoice

LARGE_BODY = 8 * 1024  # bytes; from here on rendering and tokenising (~1 ms) leave the event loop
_SEED_BITS = 63


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked of the engine, in its own terms.

    Attributes:
        prompt: the conversation as `ChatFormat.plan` takes it, or a raw prompt: text or token ids.
        params: one entry a choice.
        tier: a concrete tier.
        overflow: what to do when it is full; None: as it is configured.
        prediction: text that the answer probably has.
        cache_salt: of the client.
        deadline_s: from now on.
        fields: the engine's names of fields → the wire's, for errors.
        tools: on offer.
        choice: whether they are called.
        output: what the text of the answer is.
        prompt_logprobs: see `GenerateRequest`.
        clamp: a ``max_tokens`` beyond the end of the context means: up to there.
    """

    prompt: Sequence[Message] | Sequence[int] | str
    params: Sequence[SamplingParams]
    tier: str
    fields: Mapping[str, str]
    overflow: str | None = None
    prediction: str = ""
    cache_salt: str = ""
    deadline_s: float | None = None
    tools: Sequence[Tool] = ()
    choice: ToolChoice = ToolChoice()  # noqa: RUF009 (immutable)
    output: OutputFormat = OutputFormat()  # noqa: RUF009 (immutable)
    prompt_logprobs: int | None = None
    clamp: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """The streams of a job, one a choice, the parser of each, and the event that tells of news in any of them."""

    streams: list[TokenStream]
    parsers: list[AnswerParser]
    news: asyncio.Event

    @property
    def tier(self) -> str:
        """The tier that serves."""
        return self.streams[0].tier

    async def admitted(self) -> None:
        """Wait until all have their slots. Raises what `TokenStream.admitted` raises."""
        for stream in self.streams:
            await stream.admitted()

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


async def run(
    connection: HTTPConnection, loop: EngineLoop, *jobs: Job, request_id: str, body_size: int, whole: bool
) -> Running:
    """Render, tokenise, check and submit; all choices of all jobs or none.

    Args:
        connection: that brought the jobs: it says who they share caches with.
        loop: of the model.
        jobs: what to do: one, or several of the same tier that differ in their prompts.
        request_id: what whoever watches the engine knows them by.
        body_size: bytes that the jobs came in.
        whole: see `EngineLoop.submit_all`.

    Raises:
        RequestError: with the wire's name of the field at fault.
    """
    requests: list[GenerateRequest] = []
    parsers: list[AnswerParser] = []
    tier = jobs[0].tier
    with _wire_names(jobs[0].fields):
        for job in jobs:
            if body_size < LARGE_BODY and not job.tools and job.output.kind == "text":
                prepared = _prepare(loop, job)
            else:
                prepared = await asyncio.to_thread(_prepare, loop, job)
            domain = cache_domain(connection, tier=tier, salt=job.cache_salt)
            room = loop.engine.max_context - len(prepared.prompt_ids)
            requests += _requests(job, prepared, room=room, domain=domain, request_id=request_id)
            parsers += [prepared.parser() for _ in job.params]
        news = asyncio.Event()
        connection.state.rate_limits = partial(rate_limits, loop, tier)
        streams = await loop.submit_all(requests, news=news, whole=whole)
        connection.state.rate_limits = partial(rate_limits, loop, streams[0].tier)
        return Running(streams, parsers, news)


def prompt_of(loop: EngineLoop, job: Job) -> list[int]:
    """Token ids of a job's prompt. Takes as long as rendering and tokenising do.

    Raises:
        RequestError: with the wire's name of the field at fault.
    """
    with _wire_names(job.fields):
        return _prepare(loop, job).prompt_ids


def count_tokens(loop: EngineLoop, job: Job) -> int:
    """How many there are. Raises what `prompt_of` raises."""
    return len(prompt_of(loop, job))


@dataclass(frozen=True, slots=True)
class _Prepared:
    prompt_ids: list[int]
    prediction: list[int]
    grammar: str | None
    parser: Callable[[], AnswerParser]


def _prepare(loop: EngineLoop, job: Job) -> _Prepared:
    engine = loop.engine
    if isinstance(job.prompt, str) or not job.prompt or not isinstance(job.prompt[0], Mapping):
        prompt_ids = engine.encode_prompt(job.prompt)
        return _Prepared(prompt_ids, _encode_prediction(loop, job, len(prompt_ids)), None, PlainParser)
    plan = engine.chat.plan(job.prompt, tools=job.tools, choice=job.choice, output=job.output)  # type: ignore[arg-type]
    prompt_ids = engine.encode_prompt(plan.messages, tools=plan.tools)
    if plan.grammar is not None:
        engine.prepare_grammar(plan.grammar)
    return _Prepared(prompt_ids, _encode_prediction(loop, job, len(prompt_ids)), plan.grammar, plan.parser)


def _requests(job: Job, prepared: _Prepared, *, room: int, domain: str, request_id: str) -> list[GenerateRequest]:
    """One a choice; ``room`` is what the prompt leaves of the context."""
    return [
        GenerateRequest(
            prepared.prompt_ids,
            _clamped(params, room) if job.clamp else params,
            job.tier,
            overflow=job.overflow,
            prediction=prepared.prediction,
            cache_salt=domain,
            grammar=prepared.grammar,
            prompt_logprobs=job.prompt_logprobs,
            deadline_s=job.deadline_s,
            id=request_id,
        )
        for params in job.params
    ]


def _clamped(params: SamplingParams, room: int) -> SamplingParams:
    return replace(params, max_tokens=None) if (params.max_tokens or 0) > room else params


def _encode_prediction(loop: EngineLoop, job: Job, prompt_tokens: int) -> list[int]:
    """Token ids of the prediction, no more than an answer can have."""
    if not job.prediction:
        return []
    engine = loop.engine
    room = max(0, engine.max_context - prompt_tokens)
    text = job.prediction[: room * engine.tokenizer.longest_token]  # what is longer takes long, and is of no use
    return engine.tokenizer.encode(text)[:room]


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
