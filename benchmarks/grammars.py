"""What constrained decoding costs, and what of JSON Schema it covers.

    make bench-grammars ARGS="masks"              time of a mask, along real documents
    make bench-grammars ARGS="coverage SUITE"     the public JSON Schema Test Suite, in the folder SUITE
    make bench-grammars ARGS="decode"             tokens per second with and without a schema

`masks` and `coverage` also measure the xgrammar library where it is installed, which takes PyTorch.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from grammar_cases import coverage, decode, masks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    commands = parser.add_subparsers(required=True, dest="command")
    commands.add_parser("masks")
    commands.add_parser("coverage").add_argument("suite", type=Path, help="a checkout of the suite")
    decoding = commands.add_parser("decode")
    decoding.add_argument("--rounds", type=int, default=7)
    decoding.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.command == "masks":
        figures = masks.measure()
    elif arguments.command == "coverage":
        figures = coverage.measure(arguments.suite)
    else:
        figures = decode.measure(arguments.rounds, arguments.threads)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
