"""Fields that requests of several formats have: their ranges, and what they mean to the engine."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ultrafast.types import SamplingParams

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(gt=0, le=1)]
TopK = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
Stop = Annotated[str, Meta(min_length=1, max_length=1000)]
FormatName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]
Overflow = Literal["default", "queue", "reject"]
CacheSalt = Annotated[str, Meta(max_length=256)]
Deadline = Annotated[float, Meta(gt=0, le=86400)]


class StreamOptions(Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SampledRequest(Struct, kw_only=True):
    """What Chat Completions and Completions share: how tokens are picked, how the answer is sent, and who serves it."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    ignore_eos: bool | None = None
    logit_bias: Annotated[dict[int, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=1024)] | None = None
    seed: Seed | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    service_tier: str | None = None
    service_tier_overflow: Overflow | None = None
    cache_salt: CacheSalt | None = None
    deadline_s: Deadline | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def counts_usage(self) -> bool:
        """Whether the other chunks of such a stream have the usage so far."""
        return bool(self.include_usage and self.stream_options and self.stream_options.continuous_usage_stats)

    def sampling(
        self, *, max_tokens: int | None, stop: str | list[str] | None, logprobs: int | None, ignore_eos: bool = False
    ) -> SamplingParams:
        """How the engine picks tokens; the seed is each choice's own.

        Args:
            ignore_eos: whether or not the request says so.
        """
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=or_one(self.temperature),
            top_k=self.top_k or 0,
            top_p=or_one(self.top_p),
            min_p=self.min_p or 0.0,
            repetition_penalty=or_one(self.repetition_penalty),
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            logit_bias=self.logit_bias or {},
            stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
            logprobs=logprobs,
            ignore_eos=ignore_eos or bool(self.ignore_eos),
        )


def or_one(value: float | None) -> float:
    """A factor or a share: 1 where none was sent, as all these APIs have it."""
    return 1.0 if value is None else value
