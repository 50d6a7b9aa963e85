"""What the way over HTTP costs: one client of `ultrafast serve` beside the engine called directly, in turns.

Server, client and the engine called directly share the same cores; two of the three are idle at any time, except that
client and server work together, so what the client needs to parse the events counts against HTTP. Requests are the same
text for both, and greedy, so the tokens are the same too.

    make bench-http ARGS="--json http.json"
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from served import served
from ultrafast.engine.engine import Engine

PROMPT_TOKENS = 512
OUTPUT_TOKENS = 384
_TOPICS = ("harbours", "mountains", "libraries", "orchards", "lighthouses", "railways", "gardens", "bridges")


@dataclass
class Timed:
    """One request: seconds to the first token and to the end, tokens in the first piece and in all."""

    first_s: float
    total_s: float
    first_tokens: int
    tokens: int

    @property
    def tokens_per_s(self) -> float:
        """After the first piece."""
        return (self.tokens - self.first_tokens) / (self.total_s - self.first_s)


@dataclass
class Result:
    """Samples by round."""

    model: str
    threads: int
    raw_tokens_per_s: list[float] = field(default_factory=list)
    streamed_tokens_per_s: list[float] = field(default_factory=list)
    raw_total_s: list[float] = field(default_factory=list)
    whole_total_s: list[float] = field(default_factory=list)
    raw_prefill_s: list[float] = field(default_factory=list)
    http_first_token_s: list[float] = field(default_factory=list)

    def report(self) -> str:
        """Medians and what became of each over HTTP."""
        pairs = (
            ("streaming, tokens/s", self.raw_tokens_per_s, self.streamed_tokens_per_s, 1.0, 0),
            (f"not streaming, ms for {OUTPUT_TOKENS} tokens", self.raw_total_s, self.whole_total_s, 1e3, 1),
            (f"first of {PROMPT_TOKENS} prompt tokens, ms", self.raw_prefill_s, self.http_first_token_s, 1e3, 1),
        )
        lines = [
            f"{self.model}, {self.threads} threads, one client",
            f"{'':36}{'engine':>10}{'HTTP':>10}  HTTP / engine",
        ]
        for title, raw, over_http, scale, digits in pairs:
            ratio = statistics.median(h / r for h, r in zip(over_http, raw, strict=True))
            medians = (f"{statistics.median(values) * scale:,.{digits}f}" for values in (raw, over_http))
            lines.append(f"{title:36}{''.join(f'{value:>10}' for value in medians)}{ratio:15.3f}")
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="known name or GGUF file (default: %(default)s)")
    parser.add_argument("--threads", type=int, metavar="N", help="workers (default: one per physical core)")
    parser.add_argument("--repeats", type=int, default=9, metavar="N", help="rounds (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    arguments = parser.parse_args()
    with Engine(arguments.model, threads=arguments.threads) as engine, served(arguments.model, engine.threads) as port:
        result = Result(engine.model_id, engine.threads)
        measure(engine, http.client.HTTPConnection("127.0.0.1", port), arguments.repeats, result)
    print(result.report())
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")
    return 0


def measure(engine: Engine, connection: http.client.HTTPConnection, repeats: int, result: Result) -> None:
    """One round that only warms up, then ``repeats`` that count; in every other one HTTP comes first."""
    rng = random.Random(0)
    for number in range(repeats + 1):
        print(f"round {number} of {repeats}" if number else "warming up", file=sys.stderr)
        story = [
            {"role": "user", "content": f"Write a very long story about {rng.randrange(99)} {rng.choice(_TOPICS)}."}
        ]
        long_prompt = _long_prompt(engine, rng)
        # The engine is measured twice, so that each way over HTTP has its own neighbour in time.
        runs = (
            partial(_direct, engine, story, OUTPUT_TOKENS),
            partial(_streamed, connection, story, OUTPUT_TOKENS, engine.model_id),
            partial(_direct, engine, story, OUTPUT_TOKENS),
            partial(_whole, connection, story, OUTPUT_TOKENS, engine.model_id),
            partial(_direct, engine, long_prompt, 2),
            partial(_streamed, connection, long_prompt, 2, engine.model_id),
        )
        order = range(6) if number % 2 else (1, 0, 3, 2, 5, 4)
        timed = {i: runs[i]() for i in order}
        if number == 0:
            continue
        result.raw_tokens_per_s.append(timed[0].tokens_per_s)
        result.streamed_tokens_per_s.append(timed[1].tokens_per_s)
        result.raw_total_s.append(timed[2].total_s)
        result.whole_total_s.append(timed[3].total_s)
        result.raw_prefill_s.append(timed[4].first_s)
        result.http_first_token_s.append(timed[5].first_s)


def _long_prompt(engine: Engine, rng: random.Random) -> list[dict[str, str]]:
    """A message that makes about `PROMPT_TOKENS` tokens, and that nobody has seen."""
    words: list[str] = []
    while True:
        words += (f"{rng.choice(_TOPICS)} {rng.randrange(1000)}" for _ in range(8))
        messages = [{"role": "user", "content": " ".join(words)}]
        if len(engine.encode_prompt(messages)) >= PROMPT_TOKENS:
            return messages


def _direct(engine: Engine, messages: list[dict[str, str]], max_tokens: int) -> Timed:
    start = time.perf_counter()
    deltas = engine.stream(messages, max_tokens=max_tokens)
    first_tokens = len(next(deltas).token_ids)
    first = time.perf_counter()
    tokens = first_tokens + sum(len(delta.token_ids) for delta in deltas)
    return Timed(first - start, time.perf_counter() - start, first_tokens, tokens)


def _streamed(
    connection: http.client.HTTPConnection, messages: list[dict[str, str]], max_tokens: int, model: str
) -> Timed:
    """Every event is parsed, as a client would. The first event with text carries one token."""
    start = time.perf_counter()
    response = _post(connection, messages, max_tokens, model=model, stream=True, stream_options={"include_usage": True})
    first, tokens = 0.0, 0
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if not first and event["choices"] and event["choices"][0]["delta"].get("content"):
            first = time.perf_counter()
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    return Timed(first - start, time.perf_counter() - start, 1, tokens)


def _whole(
    connection: http.client.HTTPConnection, messages: list[dict[str, str]], max_tokens: int, model: str
) -> Timed:
    start = time.perf_counter()
    answer = json.loads(_post(connection, messages, max_tokens, model=model, stream=False).read())
    total = time.perf_counter() - start
    return Timed(total, total, 0, answer["usage"]["completion_tokens"])


def _post(
    connection: http.client.HTTPConnection, messages: list[dict[str, str]], max_tokens: int, **fields: Any
) -> http.client.HTTPResponse:
    body = {"messages": messages, "max_tokens": max_tokens, "temperature": 0, **fields}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"http_path: the server answered {response.status}: {response.read().decode()}")
    return response


if __name__ == "__main__":
    sys.exit(main())
