"""A synthetic log of an outage: thousands of lines of a shop, and in them one chain from cause to symptom."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

DATE = "2026-03-14"
_START = 2 * 3600  # of the log: 02:00:00
_LENGTH = 1800  # seconds
_CAUSE_AT = 900

Fill = Callable[[random.Random], str]


@dataclass(frozen=True)
class Link:
    """One message of a chain: how long after the cause it first comes, how often after that, and what it says."""

    after_s: float
    times: int
    service: str
    level: str
    text: str


@dataclass(frozen=True)
class Incident:
    """A log and what is behind it.

    Attributes:
        lines: in order of time.
        chain: of ``lines``, the first of every link, the cause first.
    """

    lines: list[str]
    chain: list[str]

    @property
    def cause(self) -> str:
        return self.chain[0]


_CHAINS = [
    [
        Link(0, 1, "config", "INFO", "change CHG-4821 applied to payments-db: max_connections 400 -> 40"),
        Link(25, 3, "payments-db", "WARN", "connections in use {high} of 40"),
        Link(70, 40, "payments-db", "ERROR", "connection refused: no slot left for role payments"),
        Link(75, 160, "payments-api", "ERROR", "no database connection after {ms} ms, request {id} given up"),
        Link(80, 200, "checkout", "ERROR", "payment of order {id} failed: 503 from payments-api"),
        Link(140, 12, "edge", "WARN", "checkout unhealthy: {pct} % of answers are 5xx"),
    ],
    [
        Link(0, 1, "deploy", "INFO", "search-index 7.3.0 rolled out to all nodes: log level is debug"),
        Link(40, 30, "search-index", "WARN", "volume /var is {pct} % full"),
        Link(160, 60, "search-index", "ERROR", "write of segment {id} failed: no space left on device"),
        Link(170, 140, "catalogue", "ERROR", "search for {id} failed after {ms} ms: index is read-only"),
        Link(175, 180, "storefront", "ERROR", "page of product {id} is empty: catalogue gave no result"),
        Link(260, 10, "edge", "WARN", "storefront unhealthy: {pct} % of answers are 5xx"),
    ],
    [
        Link(0, 1, "pki", "WARN", "certificate of auth.internal expired, renewal job is disabled since CHG-4790"),
        Link(5, 90, "sessions", "ERROR", "TLS handshake with auth.internal failed: certificate has expired"),
        Link(20, 20, "sessions", "WARN", "token cache misses {pct} % of lookups"),
        Link(60, 150, "gateway", "ERROR", "login of user {id} refused: sessions gave no answer in {ms} ms"),
        Link(65, 190, "mobile-api", "ERROR", "request {id} ended with 401 after {ms} ms"),
        Link(180, 9, "edge", "WARN", "mobile-api unhealthy: {pct} % of answers are 4xx"),
    ],
]

_NOISE = [
    ("checkout", "INFO", "order {id} placed in {ms} ms"),
    ("payments-api", "INFO", "charge {id} authorised in {ms} ms"),
    ("catalogue", "INFO", "search for {id} took {ms} ms"),
    ("storefront", "INFO", "page of product {id} rendered in {ms} ms"),
    ("sessions", "INFO", "token of user {id} renewed"),
    ("gateway", "INFO", "GET /v2/items/{id} 200 {ms} ms"),
    ("mobile-api", "INFO", "request {id} ended with 200 after {ms} ms"),
    ("mailer", "INFO", "message {id} queued"),
    ("jobs", "INFO", "job {id} done in {ms} ms"),
    ("recommender", "DEBUG", "scored {ms} items for user {id}"),
]

_ODDITIES = [  # seen before the incident too, or harmless: what a hasty reader would blame
    ("jobs", "WARN", "nightly export is {ms} ms behind"),
    ("mailer", "WARN", "mail server answered 451, message {id} is tried again"),
    ("recommender", "WARN", "collector paused the process for {ms} ms"),
    ("gateway", "WARN", "client {id} sent a header of {ms} bytes"),
    ("catalogue", "ERROR", "image {id} is missing, placeholder shown"),
    ("pki", "INFO", "certificate of shop.example ends in 20 days"),
    ("deploy", "INFO", "mailer 2.1.7 rolled out to all nodes"),
    ("config", "INFO", "change CHG-4819 applied to recommender: batch 64 -> 96"),
    ("edge", "INFO", "weights of two regions swapped for the monthly drill"),
    ("backup", "INFO", "snapshot {id} finished in {ms} ms"),
    ("ntp", "WARN", "clock is {ms} us ahead of the reference"),
    ("kernel", "WARN", "one packet of {ms} bytes dropped on eth1"),
]


def make_log(seed: int, *, num_lines: int = 4000) -> Incident:
    """The log of one outage; the seed chooses which, and everything else.

    Args:
        num_lines: 1,000 at least.
    """
    if num_lines < 1000:
        raise ValueError("an incident has at least 1,000 lines")
    rng = random.Random(seed)
    chain = _CHAINS[seed % len(_CHAINS)]
    scale = min(1.0, num_lines / 4000)
    events: list[tuple[float, int, str]] = []  # second, link or -1, line
    for number, link in enumerate(chain):
        first = _CAUSE_AT + link.after_s
        times = max(1, round(link.times * scale)) if link.times > 1 else 1
        moments = [first, *(rng.uniform(first, _LENGTH - 1) for _ in range(times - 1))]
        events += [(at, number, _line(rng, at, link.service, link.level, link.text)) for at in moments]
    for service, level, text in _ODDITIES:
        times = rng.randint(1, 4) if "{" in text else 1
        moments = [rng.uniform(0, _LENGTH - 1) for _ in range(times)]
        events += [(at, -1, _line(rng, at, service, level, text)) for at in moments]
    while len(events) < num_lines:
        at = rng.uniform(0, _LENGTH - 1)
        events.append((at, -1, _line(rng, at, *rng.choice(_NOISE))))
    events.sort()
    firsts = [next(line for _, link, line in events if link == number) for number in range(len(chain))]
    return Incident([line for _, _, line in events], firsts)


def _line(rng: random.Random, at: float, service: str, level: str, text: str) -> str:
    seconds = _START + at
    clock = f"{int(seconds) // 3600:02}:{int(seconds) // 60 % 60:02}:{seconds % 60:06.3f}"
    values = {
        "id": str(rng.randint(10_000, 99_999)),
        "ms": str(rng.randint(3, 2900)),
        "pct": str(rng.randint(91, 99)),
        "high": str(rng.randint(36, 39)),
    }
    return f"{DATE} {clock} {level} {service}: {text.format(**values)}"
