"""``truncation: "auto"``: a conversation that is too long loses its oldest items."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ultrafast.engine.loop import EngineLoop
from ultrafast.errors import RequestError
from ultrafast.serving.generate import count_tokens
from ultrafast.serving.wire.response_items import OUTPUTS, Item
from ultrafast.serving.wire.responses_request import Asked

_KEPT_ROLES = ("system", "developer")


def shortened(loop: EngineLoop, asked: Asked) -> list[Item]:
    """The conversation without as many of its oldest items as must go; unchanged if dropping does not help.

    System messages and the last item stay, and an output goes with its call. Renders and tokenises some
    log2(number of items) times.
    """
    items = asked.items
    room = loop.engine.max_context - (asked.ask.max_output_tokens or 1)
    old = [index for index, item in enumerate(items[:-1]) if item.get("role") not in _KEPT_ROLES]

    def fits(count: int) -> bool:
        try:
            return count_tokens(loop, asked.job(_without(items, old[:count]))) <= room
        except RequestError:  # such as a template that wants a user's message first: drop more
            return False

    counts = range(1, len(old) + 1)
    at = bisect_left(counts, True, key=fits)
    return _without(items, old[: counts[at]]) if at < len(counts) else items


def _without(items: Sequence[Item], dropped: Sequence[int]) -> list[Item]:
    gone = set(dropped)
    kept = [item for index, item in enumerate(items) if index not in gone]
    calls = {(item["type"], item["call_id"]) for item in kept if item["type"] in OUTPUTS.values()}
    return [item for item in kept if item["type"] not in OUTPUTS or (OUTPUTS[item["type"]], item["call_id"]) in calls]
