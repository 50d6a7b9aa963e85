"""The tables of `ultrafast tiers` and `ultrafast top`, as text."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from ultrafast.cli.lanes import frame, overview
from ultrafast.engine.status import CacheStatus, LaneStatus, ModelStatus, RequestStatus
from ultrafast.engine.tiers import DEFAULT_TIERS, TIERS

URL = "http://127.0.0.1:8000"


def lane(tier: str, **fields: Any) -> LaneStatus:
    policy = DEFAULT_TIERS.policies[tier]
    known: dict[str, Any] = {
        "tier": tier,
        "slots": policy.slots,
        "running": 0,
        "queued": 0,
        "queue": policy.queue,
        "overflow": policy.overflow.value,
        "queue_timeout_s": policy.queue_timeout_s,
        "speculation": policy.speculation,
        "price": policy.price,
        "tokens_per_s": 0.0,
        "tokens_per_s_per_request": None,
        "ttft_ms": None,
        "served": 0,
        "refused": 0,
        "downgraded": 0,
        "cancelled": 0,
        "acceptance": None,
    }
    return LaneStatus(**known | fields)


def request(number: int = 0, **fields: Any) -> RequestStatus:
    known: dict[str, Any] = {
        "id": f"req_{number:024x}",
        "tier": "default",
        "asked": "default",
        "state": "decode",
        "prompt_tokens": 1234,
        "output_tokens": 567,
        "cached_tokens": 1024,
        "tokens_per_s": 41.5,
        "acceptance": None,
        "age_s": 14.2,
    }
    return RequestStatus(**known | fields)


def model(*requests: RequestStatus, **lanes: dict[str, Any]) -> ModelStatus:
    return ModelStatus(
        model="smollm2-135m",
        share=0.9,
        lanes=[lane(tier, **lanes.get(tier, {})) for tier in TIERS],
        cache=CacheStatus(
            blocks=4608,
            free_blocks=4000,
            cached_blocks=512,
            block_tokens=64,
            bytes_per_block=1 << 20,
            prompt_tokens=1000,
            cached_tokens=250,
        ),
        requests=requests,
    )


BUSY = {
    "ultrafast": {
        "running": 4,
        "queued": 64,
        "tokens_per_s": 12345.6,
        "tokens_per_s_per_request": 2310.0,
        "ttft_ms": 12.04,
        "acceptance": 0.614,
        "served": 1_234_567,
        "refused": 98_765,
        "downgraded": 4_321,
        "cancelled": 10,
    },
    "default": {
        "running": 32,
        "queued": 1024,
        "tokens_per_s": 99.94,
        "tokens_per_s_per_request": 9.5,
        "ttft_ms": 3210.0,
    },
}


def rendered(what: RenderableType, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False, _environ={}).print(what)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def row(lines: list[str], start: str) -> str:
    """The one line that begins so, with single spaces."""
    (found,) = [line for line in lines if line.startswith(start)]
    return " ".join(found.split())


def test_the_overview_at_80_columns() -> None:
    lines = rendered(overview(model(**BUSY), width=80), 80)
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    assert lines[0] == "smollm2-135m: ultrafast gets 90% of the time while other tiers have work"
    assert row(lines, "tier ") == "tier running queued when full drafts price tokens/s each TTFT accept"
    assert row(lines, "ultrafast ") == "ultrafast 4/4 64/64 queue 30 s on 6x 12,346 2,310 12 ms 61%"
    assert row(lines, "fast ") == "fast 0/8 0/0 default off 2x 0.0 - - -"
    assert row(lines, "default ") == "default 32/32 1024/1024 queue 600 s off 1x 99.9 9.5 3.2 s -"
    assert row(lines, "flex ") == "flex 0/16 0/0 reject off 0.5x 0.0 - - -"
    assert row(lines, "KV cache ") == ("KV cache 4,608 MiB: 4,000 of 4,608 blocks free, 512 hold prefixes; hits 25%")


def test_a_wide_overview_counts_as_well() -> None:
    lines = rendered(overview(model(**BUSY), width=120), 120)
    assert max(map(len, lines)) <= 120
    assert row(lines, "tier ").endswith(" accept served refused downgraded cancelled")
    assert row(lines, "ultrafast ").endswith(" 61% 1,234,567 98,765 4,321 10")


@pytest.mark.parametrize("width", [80, 120])
def test_a_frame_of_few_requests(width: int) -> None:
    requests = [
        request(1, tier="flex", asked="flex", state="prefill", output_tokens=0, tokens_per_s=None, age_s=0.25),
        request(2, tier="default", asked="fast"),
        request(3, tier="ultrafast", asked="ultrafast", tokens_per_s=231.4, acceptance=0.5),
        request(4, tier="default", state="queued", output_tokens=0, tokens_per_s=None),
        request(5, tier="default", age_s=200.0),
    ]
    lines = rendered(frame([model(*requests, **BUSY)], URL, width=width, height=24), width)
    assert max(map(len, lines)) <= width
    assert len(lines) <= 24
    assert lines[0] == f"ultrafast at {URL} (q leaves)"
    assert lines[1] == "5 requests: 3 decode, 1 prefill, 1 queued"
    counts = " served refused downgraded cancelled" if width == 120 else ""
    assert row(lines, "tier ") == "tier load running queued tokens/s each TTFT accept" + counts
    assert row(lines, "ultrafast ━").startswith(f"ultrafast {'━' * 12} 4/4 64/64 ")
    assert row(lines, "fast ").startswith("fast 0/8 ")  # an empty bar
    table = [" ".join(line.split()[1:]) for line in lines if line.startswith("req_")]
    assert table == [
        "ultrafast decode 1,234 1,024 567 231 50% 14.2 s",
        "default decode 1,234 1,024 567 41.5 - 3 min",  # the oldest first
        "default for fast decode 1,234 1,024 567 41.5 - 14.2 s",
        "default queued 1,234 1,024 0 - - 14.2 s",
        "flex prefill 1,234 1,024 0 - - 250 ms",
    ]
    assert any("req_" + "3".rjust(24, "0") in line for line in lines) is (width == 120)


@pytest.mark.parametrize(("num_requests", "height"), [(11, 24), (12, 24), (13, 24), (1000, 24), (1000, 50), (40, 14)])
def test_a_frame_is_as_high_as_the_terminal_and_says_what_it_leaves_out(num_requests: int, height: int) -> None:
    requests = [request(n, tier=TIERS[n % 4], age_s=float(n)) for n in range(num_requests)]
    lines = rendered(frame([model(*requests)], URL, width=80, height=height), 80)
    assert len(lines) <= height
    shown = sum(line.startswith("req_") for line in lines)
    if shown < num_requests:
        assert len(lines) == height
        assert lines[-1].startswith(f"and {num_requests - shown} more: ")
        assert lines[-1].endswith(" flex")
    else:
        assert "more" not in lines[-1]


def test_all_requests_are_shown_without_a_height() -> None:
    requests = [request(n) for n in range(1000)]
    lines = rendered(frame([model(*requests)], URL, width=80, height=None), 80)
    assert sum(line.startswith("req_") for line in lines) == 1000
    assert lines[0] == f"ultrafast at {URL}"


@pytest.mark.parametrize("height", [1, 8, 12])
def test_a_terminal_too_low_for_requests_still_has_the_lanes(height: int) -> None:
    lines = rendered(frame([model(request())], URL, width=80, height=height), 80)
    assert row(lines, "flex ").startswith("flex 0/16 ")
    assert not any(line.startswith("req_") for line in lines)


def test_a_problem_takes_the_second_line() -> None:
    problem = f"no server answers at {URL} (Connection refused)"
    lines = rendered(frame([model(request())], URL, width=120, height=24, problem=problem), 120)
    assert lines[1] == f"{problem}; trying again. What it told last:"
    assert any(line.startswith("req_") for line in lines)
    narrow = rendered(frame([model(request())], URL, width=80, height=24, problem=problem), 80)
    assert narrow[1].startswith(problem)
    assert len(narrow) == len(lines)


def test_what_looks_like_markup_is_shown_as_it_is() -> None:
    lines = rendered(frame([model(request(id="[bold]"))], URL, width=80, height=24), 80)
    assert any(line.startswith("[bold] ") for line in lines)
