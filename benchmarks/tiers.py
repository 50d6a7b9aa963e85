"""Measure what the tiers promise, each promise in a case of its own, against `ultrafast serve` over HTTP.

lane         an ultrafast request beside 16 default streams: its speed and first token, and what it leaves to them
gap          how long running streams pause when a prompt of 6,000 tokens arrives
speculation  drafts against plain decoding: copying answers, and text that never repeats
prefix       the first token after a prefix of 2,000 tokens that was seen before
soak         minutes of random load at twice the capacity: gaps, waits, leaks

What is compared is measured in turns in one run. Ctrl-C ends it with what is measured by then.

    make bench-tiers ARGS="lane gap --json tiers.json"
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
import time
from pathlib import Path
from random import Random
from types import ModuleType

import uvloop

from served import served
from tier_cases import gap, lane, prefix, soak, speculation
from tier_cases.bench import Bench
from tier_cases.client import Client
from tier_cases.figures import Findings
from tier_cases.report import Results, document, table
from tier_cases.words import Words
from ultrafast.engine.topology import default_threads, detect
from ultrafast.models import fetch

CASES: dict[str, ModuleType] = {
    "lane": lane,
    "gap": gap,
    "speculation": speculation,
    "prefix": prefix,
    "soak": soak,
}


def main() -> int:
    arguments = _arguments()
    threads = arguments.threads or len(default_threads(detect()))
    results = Results(arguments.model, detect().cpu_model, threads, f"Linux {platform.release()}")
    words = Words(fetch.resolve(arguments.model))
    try:
        for name in arguments.cases or CASES:
            _run(name, arguments, words, results)
        results.complete = all(found.error is None for found in results.cases.values())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    print(table(results))
    if arguments.json:
        arguments.json.write_text(document(results), encoding="utf-8")
    return 0 if results.all_met else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"only these of {', '.join(CASES)}")
    parser.add_argument("--model", default="smollm2-135m", help="known name or GGUF file (default: %(default)s)")
    parser.add_argument("--threads", type=int, metavar="N", help="workers (default: one per physical core)")
    parser.add_argument(
        "--quick", action="store_true", help="fewer and smaller tries: shows that it works, measures nothing"
    )
    parser.add_argument("--minutes", type=float, default=10, metavar="N", help="of the soak (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of prompts and load (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    return arguments


def _run(name: str, arguments: argparse.Namespace, words: Words, results: Results) -> None:
    """One case with a server of its own, so that none sees another's caches."""
    found = results.cases[name] = Findings(CASES[name].FIGURES)
    start = time.perf_counter()
    try:
        with (
            served(arguments.model, arguments.threads) as port,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop,
        ):
            client = Client(port, results.model)
            bench = Bench(
                name, client, words, found, Random(arguments.seed), quick=arguments.quick, minutes=arguments.minutes
            )
            loop.run(_measure(CASES[name], bench))
    except* (RuntimeError, OSError) as errors:
        found.error = str(errors.exceptions[0])
        print(f"{name}: {found.error}", file=sys.stderr)
    finally:
        found.seconds = time.perf_counter() - start


async def _measure(case: ModuleType, bench: Bench) -> None:
    try:
        await case.measure(bench)
    finally:
        await bench.client.close()


if __name__ == "__main__":
    sys.exit(main())
