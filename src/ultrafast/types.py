"""The data that travels between wire formats, engine and native code: no logic beyond derived values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Message = Mapping[str, Any]
"""One chat message as clients send it: ``{"role": …, "content": …}``, content already reduced to a string."""

Prompt = str | Sequence[Message] | Sequence[int]
"""Raw text (special tokens parsed), chat messages (rendered by the model's template) or token ids."""


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"  # end-of-generation token or a stop string
    LENGTH = "length"  # max_tokens or the context limit
    CANCELLED = "cancelled"  # the client's wish, an error, or the engine was closed


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to pick tokens. Ranges are checked by `Engine.check` (``RequestError`` naming the field)."""

    max_tokens: int | None = None  # None: up to the context limit; 0 for a prompt that is only scored
    temperature: float = 0.0  # 0 is greedy
    top_k: int = 0  # 0 is off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # over prompt and output (Keskar et al. 2019, as in transformers)
    presence_penalty: float = 0.0  # over output only, as OpenAI defines it
    frequency_penalty: float = 0.0  # over output only, as OpenAI defines it
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # token id -> added to its logit
    seed: int = 0  # with the position, the key of the counter-based generator
    stop: tuple[str, ...] = ()  # never part of the text
    logprobs: int | None = None  # None: off; N: the chosen token's and the N most likely
    ignore_eos: bool = False  # go on after end-of-generation tokens (benchmarks); not past the end of a grammar


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """What a client asked, ready for the engine: immutable.

    Attributes:
        tier: the tier asked for, by its own name.
        overflow: what to do when that tier is full (`engine.tiers.Overflow`); ``None``: as the tier is configured.
        prediction: token ids that the output probably has, in this order: a draft.
        cache_salt: requests share KV prefixes and drafts only with requests of the same salt.
        grammar: of the output, in the words of `engine.grammar`; None: anything.
        prompt_logprobs: log-probabilities of the prompt's own tokens, each with the N most likely; None: off.
        deadline_s: seconds after arrival at which the request ends, with what it has by then.
        id: what whoever watches the engine knows it by.
    """

    prompt_ids: Sequence[int]
    params: SamplingParams
    tier: str = "default"
    overflow: str | None = None
    prediction: Sequence[int] = ()
    cache_salt: str = ""
    grammar: str | None = None
    prompt_logprobs: int | None = None
    deadline_s: float | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probabilities at one output position, of the model itself (before penalties and temperature)."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token id, logprob), most likely first


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """What one burst added to one sequence."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprob] | None = None  # one per token id when asked for
    finish_reason: FinishReason | None = None  # set on the last delta only
    stop: str | None = None  # the stop string that ended it; on the last delta only
    prompt_logprobs: Sequence[TokenLogprob] | None = None  # of the prompt's second token and on; on the first only


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request.

    Attributes:
        cached_tokens: of the prompt, whose keys and values were there already.
        accepted_draft_tokens: of the output, that came from a verified draft.
        rejected_draft_tokens: drafted and computed, but not what the model says.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    accepted_draft_tokens: int = 0
    rejected_draft_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(slots=True)
class Timings:
    """Seconds on a monotonic clock; 0.0 until the moment has come."""

    arrived: float = 0.0  # the engine took the request
    started: float = 0.0  # it got a slot: prefill begins
    first_token: float = 0.0
    finished: float = 0.0

    @property
    def queue_s(self) -> float:
        return self.started - self.arrived

    @property
    def ttft_s(self) -> float:
        """Time to first token, waiting included."""
        return self.first_token - self.arrived

    @property
    def prefill_s(self) -> float:
        return self.first_token - self.started

    @property
    def decode_s(self) -> float:
        """From the first token to the last."""
        return self.finished - self.first_token


@dataclass(frozen=True, slots=True)
class Output:
    """A finished request."""

    text: str
    token_ids: list[int]  # without the end-of-generation token
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    logprobs: list[TokenLogprob] | None = None  # one per token id when asked for
    prompt_logprobs: list[TokenLogprob] | None = None  # of the prompt's second token and on, when asked for

    @property
    def tokens_per_s(self) -> float:
        """Decode speed: tokens after the first by the time since the first; 0.0 when there was but one."""
        seconds = self.timings.decode_s
        return (len(self.token_ids) - 1) / seconds if len(self.token_ids) > 1 and seconds > 0 else 0.0


# ---- what a conversation may ask of an answer, and what the answer is made of --------------------------------


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call.

    Attributes:
        parameters: JSON Schema of its arguments, an object.
        strict: arguments always satisfy the schema; otherwise they are some JSON object.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether tools are called.

    Attributes:
        mode: ``required``: one at least.
        names: those that may be called; empty: all.
        parallel: several calls in one answer are fine.
    """

    mode: Literal["none", "auto", "required"] = "auto"
    names: tuple[str, ...] = ()
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """What the text of an answer is.

    Attributes:
        schema: JSON Schema that a ``json_schema`` output satisfies.
    """

    kind: Literal["text", "json_object", "json_schema"] = "text"
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of what the user reads."""

    text: str
    logprobs: Sequence[TokenLogprob] | None = None


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of reasoning before the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A tool call begins; its arguments follow, then `CallEnd`. Calls do not overlap."""

    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments of the call that has begun: JSON text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The arguments are complete."""


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The last piece.

    Attributes:
        reason: ``length`` also when it cuts a call, which then has no `CallEnd`.
        stop: the stop string that ended it, if one did.
        reasoning_tokens: of the output, that were thoughts.
    """

    reason: Literal["stop", "length", "tool_calls"]
    stop: str | None = None
    reasoning_tokens: int = 0


Piece = Text | Thought | CallBegin | CallArguments | CallEnd | AnswerEnd
"""What an answer is made of, in order."""
