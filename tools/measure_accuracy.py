"""Measure Ultrafast's accuracy on the golden data, for each instruction set that this processor runs.

Prints the rows of the tables in docs/accuracy.md: the logits of the 1,500-token text against our own fp32 path, and
the most likely token at each golden greedy step. Example, in the project's environment:

    python tools/measure_accuracy.py --isa avx2 --full-logits full.npy --json accuracy.json

With --full-logits (from tools/make_golden.py) a second table is against transformers' fp32 logits, as in the row of
llama.cpp (tools/compare_llama_cpp.py). The scalar path takes many minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from accuracy_metrics import measure, table
from golden_files import MODEL, PLANS, load_golden, resolve_model
from ultrafast import Engine, __version__
from ultrafast.engine.native import REFERENCE, supported_isas

CHOICES = [*supported_isas(), REFERENCE]


def measure_all(model: str, isas: list[str], full_logits: Path | None) -> list[dict[str, Any]]:
    """Figures of each instruction set against ``fp32``, our own path, and ``transformers`` if its logits are given."""
    prompts, path = load_golden(PLANS[model].folder)["prompts"], str(resolve_model(model))
    long_ids = next(prompt["prompt_ids"] for prompt in prompts if prompt["name"] == "long_text")
    print("logits of the fp32 path…", file=sys.stderr)
    with Engine(path, isa=REFERENCE) as engine:
        references = {"fp32": engine.logits(long_ids)}
    if full_logits is not None:
        references["transformers"] = np.load(full_logits)
    rows = []
    for isa in isas:
        print(f"{isa}…", file=sys.stderr)
        with Engine(path, isa=isa) as engine:
            rows.append(measure(f"Ultrafast, {isa}", engine.logits, references, prompts))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=PLANS, default=MODEL, help="in the cache (default: %(default)s)")
    parser.add_argument("--isa", action="append", choices=CHOICES, help="only this one; may be repeated")
    parser.add_argument("--full-logits", type=Path, metavar="NPY", help="transformers' logits of the long text")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    arguments = parser.parse_args()
    try:
        rows = measure_all(arguments.model, arguments.isa or CHOICES, arguments.full_logits)
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        return 130
    for reference in rows[0]["against"]:
        print(f"\nAgainst {reference}:\n\n{table(rows, reference)}")
    if arguments.json is not None:
        document = {"ultrafast": __version__, "rows": rows}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
