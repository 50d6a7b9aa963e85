"""How lanes and requests look in a terminal: the table of `ultrafast tiers`, the frame of `ultrafast top`.

Everything fits 80 columns; from `_WIDE` on there is more of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ultrafast.engine.status import CacheStatus, LaneStatus, ModelStatus, RequestStatus

_WIDE = 110
_STATES = ("decode", "prefill", "queued")
_Cell = Callable[[LaneStatus], RenderableType]

_TIER: dict[str, _Cell] = {"tier": lambda lane: Text(lane.tier, style="bold")}
_LOAD: dict[str, _Cell] = {
    "running": lambda lane: f"{lane.running}/{lane.slots}",
    "queued": lambda lane: f"{lane.queued}/{lane.queue}",
}
_BAR: dict[str, _Cell] = {"load": lambda lane: ProgressBar(total=lane.slots, completed=lane.running, width=12)}
_POLICY: dict[str, _Cell] = {
    "when full": lambda lane: lane.overflow + f" {lane.queue_timeout_s:g} s" * (lane.overflow == "queue"),
    "drafts": lambda lane: "on" if lane.speculation else "off",
    "price": lambda lane: f"{lane.price:g}x",
}
_SPEED: dict[str, _Cell] = {
    "tokens/s": lambda lane: _speed(lane.tokens_per_s),
    "each": lambda lane: _speed(lane.tokens_per_s_per_request),
    "TTFT": lambda lane: _duration(None if lane.ttft_ms is None else lane.ttft_ms / 1e3),
    "accept": lambda lane: _share(lane.acceptance),
}
_COUNTS: dict[str, _Cell] = {
    "served": lambda lane: f"{lane.served:,}",
    "refused": lambda lane: f"{lane.refused:,}",
    "downgraded": lambda lane: f"{lane.downgraded:,}",
    "cancelled": lambda lane: f"{lane.cancelled:,}",
}


def overview(model: ModelStatus, *, width: int) -> RenderableType:
    """Policies, load and speed of one model's lanes, with what the figures mean."""
    counts = _COUNTS if width >= _WIDE else {}
    return Group(
        _line(f"{model.model}: ultrafast gets {model.share:.0%} of the time while other tiers have work", "bold"),
        "",
        _lanes(model.lanes, _TIER | _LOAD | _POLICY | _SPEED | counts),
        _cache(model.cache),
        "",
        _line("tokens/s: of all requests, last 10 s. each, TTFT: medians of the last 60 s.", "dim"),
        _line("accept: of drafted tokens. hits: of prompt tokens. price: default is 1x.", "dim"),
    )


def frame(
    models: Sequence[ModelStatus], url: str, *, width: int, height: int | None, problem: str = ""
) -> RenderableType:
    """Everything at one moment, as high as the terminal or less.

    Args:
        models: what the server told last.
        url: where it is.
        width, height: of the terminal; without a height all requests are shown.
        problem: why ``models`` is not of this moment.
    """
    counts = _COUNTS if width >= _WIDE else {}
    requests = sorted((request for model in models for request in model.requests), key=_rank(models))
    title = f"ultrafast at {url}" + (" (q leaves)" if height else "")
    lines: list[RenderableType] = [_line(title, "bold"), _note(problem, requests)]
    used = 2
    for model in models:
        lines += [
            "",
            _line(f"{model.model}, ultrafast share {model.share:.0%}"),
            _lanes(model.lanes, _TIER | _BAR | _LOAD | _SPEED | counts),
            _cache(model.cache),
        ]
        used += 4 + len(model.lanes)
    room = len(requests) if height is None else height - used - 2  # a blank line and the heads of the columns
    if requests and room > 0:
        lines += ["", *_requests(requests, room)]
    return Group(*lines)


def _requests(requests: list[RequestStatus], room: int) -> list[RenderableType]:
    """At most one line more than ``room``."""
    shown = requests if len(requests) <= room else requests[: room - 1]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", expand=True)
    table.add_column("request", no_wrap=True, ratio=1, min_width=8)
    table.add_column("tier", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for name in ("prompt", "cached", "output", "tokens/s", "accept", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    for request in shown:
        asked = f" for {request.asked}" * (request.asked != request.tier)
        table.add_row(
            request.id,
            request.tier + asked,
            request.state,
            f"{request.prompt_tokens:,}",
            f"{request.cached_tokens:,}",
            f"{request.output_tokens:,}",
            _speed(request.tokens_per_s),
            _share(request.acceptance),
            _duration(request.age_s),
        )
    hidden = Counter(request.tier for request in requests[len(shown) :])
    if not hidden:
        return [table]
    tiers = ", ".join(f"{count} {tier}" for tier, count in hidden.items())
    return [table, _line(f"and {hidden.total()} more: {tiers}", "dim")]


def _rank(models: Sequence[ModelStatus]) -> Callable[[RequestStatus], tuple[int, int, float]]:
    """Fastest tier first; in it those that bring tokens, the oldest first."""
    tiers = {lane.tier: rank for model in models for rank, lane in enumerate(model.lanes)}
    return lambda request: (tiers.get(request.tier, len(tiers)), _STATES.index(request.state), -request.age_s)


def _note(problem: str, requests: list[RequestStatus]) -> Text:
    if problem:
        return _line(f"{problem}; trying again. What it told last:", "bold red")
    states = Counter[str](request.state for request in requests)
    what = ", ".join(f"{states[state]} {state}" for state in _STATES)
    return _line(f"{len(requests)} request{'s' * (len(requests) != 1)}: {what}", "dim")


def _lanes(lanes: Sequence[LaneStatus], columns: dict[str, _Cell]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        left = name in ("tier", "load", "when full")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for lane in lanes:
        table.add_row(*(cell(lane) for cell in columns.values()))
    return table


def _cache(cache: CacheStatus) -> Text:
    share = cache.cached_tokens / cache.prompt_tokens if cache.prompt_tokens else None
    size = cache.blocks * cache.bytes_per_block / 2**20
    return _line(
        f"KV cache {size:,.0f} MiB: {cache.free_blocks:,} of {cache.blocks:,} blocks free, "
        f"{cache.cached_blocks:,} hold prefixes; hits {_share(share)}"
    )


def _line(text: str, style: str = "") -> Text:
    """One line, however narrow the terminal."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _speed(tokens_per_s: float | None) -> str:
    if tokens_per_s is None:
        return "-"
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 100 else f"{tokens_per_s:.1f}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
