"""Set-ups with a name: what a kind of user wants to know. Options replace what a profile says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ultrafast.bench.load.material import Category


@dataclass(frozen=True, slots=True)
class Profile:
    """
    Attributes:
        calls: of each cell.
        rates: open loops; without any, closed ones of `in_flight`.
    """

    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]
    calls: int
    in_flight: Sequence[int] = (1,)
    rates: Sequence[float] = ()
    warm_up: int | None = None
    category: Category = "prose"
    slo: str | None = None


PROFILES: Mapping[str, Profile] = {
    # Under a minute on the embedded model and two busy cores.
    "quick": Profile((64,), (32,), calls=20, warm_up=2),
    # As Artificial Analysis' main load: 10k tokens in, 1,500 out, prompts unique, one call at a time and ten.
    "aa": Profile((10_000,), (1_500,), calls=20, in_flight=(1, 10), warm_up=1),
    # 59 calls is the least that tells p95; 0.8 s is what callers put up with, speech recognition and synthesis apart.
    "voice": Profile((256,), (48,), calls=60, warm_up=2, slo="clause=0.8"),
    # 299 calls is the least that tells p99.
    "load": Profile((512,), (128,), calls=300, rates=(1.0,)),
}
