"""Measure what the tiers promise, each promise in a case of its own, against `ultrafast serve` over HTTP.

lane         an ultrafast request beside 16 default streams: its speed and first token, and what it leaves to them
gap          how long running streams pause when a prompt of 6,000 tokens arrives
speculation  drafts against plain decoding: copying answers, and text that never repeats
replay       the same with the answers of a capable model, in the engine without a server
prefix       the first token after a prefix of 2,000 tokens that was seen before
soak         minutes of random load at twice the capacity: gaps, waits, leaks

What is compared is measured in turns in one run. Ctrl-C ends it with what is measured by then.

    make bench-tiers ARGS="lane gap --json tiers.json"
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import signal
import sys
import time
from pathlib import Path
from random import Random
from types import ModuleType

import uvloop

from served import served
from tier_cases import gap, lane, prefix, replay, soak, speculation
from tier_cases.bench import Bench, Run
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
    "replay": replay,
    "prefix": prefix,
    "soak": soak,
}


def main() -> int:
    arguments = _arguments()
    threads = arguments.threads or len(default_threads(detect()))
    results = Results(arguments.model, detect().cpu_model, threads, f"Linux {platform.release()}")
    model = fetch.resolve(arguments.model)
    words = Words(model)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # of a time limit, like Ctrl-C
    try:
        for name in arguments.cases or CASES:
            found = results.cases[name] = Findings(CASES[name].FIGURES)
            rng, quick, minutes = Random(arguments.seed), arguments.quick, arguments.minutes
            _measure(Run(name, model, threads, words, found, rng, quick, minutes), arguments.model)
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


def _measure(run: Run, model: str) -> None:
    """One case; with a server of its own, so that none sees another's caches."""
    start = time.perf_counter()
    try:
        if run.name == "replay":
            replay.measure(run)
            return
        with served(model, run.threads) as port, asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(_ask(Bench(**vars(run), client=Client(port, model))))
    except* (RuntimeError, OSError) as errors:
        run.found.error = str(errors.exceptions[0])
        run.say(run.found.error)
    finally:
        run.found.seconds = time.perf_counter() - start


async def _ask(bench: Bench) -> None:
    try:
        await CASES[bench.name].measure(bench)
    finally:
        await bench.client.close()


if __name__ == "__main__":
    sys.exit(main())
