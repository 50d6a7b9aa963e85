"""Compare Ultrafast with other engines: the same work on the same model file, in turns, in one run.

Every engine has a process of its own, keeps its model loaded, and works only when it is its turn. It gets its best
settings: what is worth trying (threads, flash attention, KV layout, model formats that it repacks) is tried before the
first round, for each task, and the fastest is kept. Ratios are medians over the rounds of ours / theirs in the same
round. An engine that cannot be had or fails is listed with its error.

    make bench-peers ARGS="--json peers.json --write docs/performance.md --chart docs/images/peers.svg"
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import IO

from engines.client import EngineError, Entrant, Process
from engines.task import TASKS, Task
from peers_chart import chart
from peers_report import Comparison, Outcome, document, table, write_block
from ultrafast.engine.topology import default_threads, detect
from ultrafast.models import fetch

OURS = Entrant("ultrafast", "Ultrafast", "engines.ultrafast_engine")
PEERS = (
    Entrant("llama.cpp", "llama.cpp, same file", "engines.llama_cpp_engine"),
    Entrant("llama.cpp-q4_0", "llama.cpp, Q4_0 (repacked)", "engines.llama_cpp_engine", "Q4_0"),
    Entrant("llama.cpp-iq4_nl", "llama.cpp, IQ4_NL (repacked)", "engines.llama_cpp_engine", "IQ4_NL"),
    Entrant("openvino", "OpenVINO GenAI, same file", "engines.openvino_engine"),
    Entrant("transformers-bf16", "transformers, bf16", "engines.transformers_engine", "bf16"),
    Entrant("transformers-fp32", "transformers, fp32", "engines.transformers_engine", "fp32"),
)
PEERS_PYTHON = Path("build/peers-venv/bin/python")


def main() -> int:
    arguments = _arguments()
    threads = arguments.threads or len(default_threads(detect()))
    comparison = Comparison(detect().cpu_model, threads, arguments.model, f"Linux {platform.release()}")
    model = fetch.resolve(arguments.model)
    chosen = [entrant for entrant in PEERS if arguments.engines is None or entrant.name in arguments.engines]
    names = ("decode_64", "prompt_512", "sequences_16") if arguments.quick else tuple(TASKS)
    log_path = Path(tempfile.gettempdir()) / "ultrafast-bench-peers.log"
    processes: list[Process] = []
    with log_path.open("w", encoding="utf-8") as log:
        try:
            for entrant in (OURS, *chosen):
                _start(entrant, model, threads, comparison, processes, log)
            _rounds(processes, [TASKS[name] for name in names], 2 if arguments.quick else arguments.repeats, comparison)
        except KeyboardInterrupt:
            print("interrupted: what follows is what was measured by then", file=sys.stderr)
            comparison.complete = False
        finally:
            for process in processes:
                process.close()
    print(table(comparison))
    print(f"\nwhat the engines printed: {log_path}", file=sys.stderr)
    if arguments.json:
        arguments.json.write_text(document(comparison), encoding="utf-8")
    if arguments.write and comparison.complete:
        write_block(arguments.write, table(comparison))
    if arguments.chart and comparison.complete:
        arguments.chart.write_text(chart(comparison), encoding="utf-8")
    return 0 if comparison.complete else 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [entrant.name for entrant in PEERS]
    parser.add_argument("--model", default="smollm2-135m", help="known name or GGUF file (default: %(default)s)")
    parser.add_argument("--engines", nargs="+", choices=names, metavar="NAME", help=f"only these of {', '.join(names)}")
    parser.add_argument("--threads", type=int, metavar="N", help="most threads (default: one per physical core)")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="rounds (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="two rounds, short contexts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the table between the marks in FILE")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw decode and prompt speed (SVG)")
    return parser.parse_args()


def _start(
    entrant: Entrant, model: Path, threads: int, comparison: Comparison, processes: list[Process], log: IO[str]
) -> None:
    """Start an engine twice, the second time with all files in the system's cache: that load is the one reported."""
    python = Path(sys.executable) if entrant is OURS else PEERS_PYTHON
    outcome = comparison.outcomes[entrant.name] = Outcome(entrant)
    print(f"loading {entrant.title}", file=sys.stderr)
    try:
        Process(entrant, python, model, threads, os.environ, log).close()
        process = Process(entrant, python, model, threads, os.environ, log)
    except (EngineError, OSError) as error:
        outcome.error = str(error)
        print(f"  {error}", file=sys.stderr)
        return
    processes.append(process)
    outcome.version, outcome.load_s = process.version, process.load_s


def _rounds(processes: list[Process], tasks: list[Task], repeats: int, comparison: Comparison) -> None:
    """A round that tries settings and is not counted, then ``repeats`` in which every engine does every task once."""
    for number in range(repeats + 1):
        for task in tasks:
            first = number % len(processes)  # nobody always follows the same neighbour
            for process in processes[first:] + processes[:first]:
                outcome = comparison.outcomes[process.entrant.name]
                if task.name in outcome.errors:
                    continue
                what = f"round {number} of {repeats}" if number else "trying settings"
                print(f"{what}: {task.title}: {process.entrant.title}", file=sys.stderr)
                try:
                    speed = process.measure(task)
                except EngineError as error:
                    outcome.errors[task.name] = str(error)
                    print(f"  {error}", file=sys.stderr)
                    continue
                outcome.settings[task.name] = process.settings[task.name]
                if number:
                    outcome.speeds.setdefault(task.name, {})[number] = speed


if __name__ == "__main__":
    sys.exit(main())
