"""What runs cost at the prices of the tiers that served them, and at what value of time the dearer arm pays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ultrafast.bench.ab.run.records import Arm, Run
from ultrafast.bench.client.call import Call
from ultrafast.bench.client.endpoint import Price
from ultrafast.bench.statistics import Estimate, Floats, bootstrap

_MILLION = 1e6
_HOUR_S = 3600.0


def cost_of_tokens(price: Price, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> float:
    """US dollars; cached tokens are some of the prompt's."""
    cached_price = price.input if price.cached_input is None else price.cached_input
    fresh = prompt_tokens - cached_tokens
    return (fresh * price.input + cached_tokens * cached_price + output_tokens * price.output) / _MILLION


def cost_of_call(arm: Arm, call: Call) -> float:
    """US dollars at the price of the tier that served (where the answer does not say, of the tier that was asked);
    ``nan`` where tokens or price are unknown. A call that failed without a word of tokens costs nothing."""
    if call.prompt_tokens is None or call.output_tokens is None:
        return math.nan if call.is_ok or call.first_token_s is not None else 0.0
    price = arm.price_of(call.tier_served or call.tier_asked)
    if price is None:
        return math.nan
    return cost_of_tokens(price, call.prompt_tokens, call.cached_tokens or 0, call.output_tokens)


def cost_of_run(arm: Arm, run: Run) -> float:
    """US dollars of all its calls; ``nan`` if that of any is unknown."""
    return math.fsum(cost_of_call(arm, call) for call in run.calls)


def cost_per_success(costs: Sequence[float], successes: int) -> float:
    """All that was spent, failures included, over what came of it."""
    return math.fsum(costs) / successes if successes else math.inf


def extra_cost(price_ratio: float, cost: float) -> float:
    """What a task costs more where tokens cost ``price_ratio`` times as much."""
    return (price_ratio - 1) * cost


def time_saved(task_s: float, output_share: float, speed_ratio: float) -> float:
    """Seconds that a task takes less where output comes ``speed_ratio`` times as fast."""
    return task_s * output_share * (1 - 1 / speed_ratio)


def break_even(extra: ArrayLike, saved_s: ArrayLike) -> Floats:
    """The value of an hour of waiting, in the unit of the extra cost, above which the extra cost pays.

    0 where it costs no more, ``inf`` where it costs more and saves nothing.
    """
    more, seconds = np.broadcast_arrays(np.asarray(extra, dtype=float), np.asarray(saved_s, dtype=float))
    with np.errstate(divide="ignore", invalid="ignore"):
        an_hour = np.where(seconds > 0, more / seconds * _HOUR_S, math.inf)
    return np.where(np.isnan(more), math.nan, np.where(more <= 0, 0.0, an_hour))


def break_even_of_pairs(extra: ArrayLike, saved_s: ArrayLike, *, seed: int = 0) -> Estimate:
    """The same of the sums over pairs, with a paired bootstrap interval."""
    return bootstrap(lambda more, less: break_even(more.mean(axis=-1), less.mean(axis=-1)), extra, saved_s, seed=seed)


def net_of_pairs(extra: ArrayLike, saved_s: ArrayLike, hour: float, *, seed: int = 0) -> Estimate:
    """What a task gains where an hour of waiting is worth ``hour``, less what it costs more."""
    return bootstrap(
        lambda more, less: less.mean(axis=-1) * hour / _HOUR_S - more.mean(axis=-1), extra, saved_s, seed=seed
    )
