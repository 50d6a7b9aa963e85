"""``python -m examples.research``"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from examples.endpoint import Endpoint, endpoints, options, positive, run
from examples.research.note import METRICS, NUM_PARTS, Note, Writer
from examples.research.sources import read_filing, read_market

DATA = Path(__file__).parent / "data"


def seconds(text: str) -> float:
    """A time above 0, for `argparse`."""
    number = float(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text} s is no deadline")
    return number


async def main(argv: list[str] | None = None) -> None:
    """Write the notes in every tier; print the first, and what was ready when."""
    parser = options("research", "Write an intraday note from filings and quotes, every figure with its source.")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with filings (*.txt) and quotes.csv (samples)")
    parser.add_argument(
        "--deadline", type=seconds, action="append", metavar="S", help="what is ready by then (15 and 60)"
    )
    parser.add_argument("--at-once", type=positive, default=4, help="requests in flight (%(default)s)")
    parser.add_argument("--free", action="store_true", help="the schema does not list the figures of a filing")
    args = parser.parse_args(argv)
    try:
        filings = [read_filing(path) for path in sorted(args.data.glob("*.txt"))]
        markets = [read_market(args.data / "quotes.csv", filing) for filing in filings]
        key = read_key(args.data / "key.json")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if not filings:
        parser.error(f"{args.data} has no filing (*.txt)")
    async with endpoints(args) as tiers:
        for endpoint in tiers:
            writer = Writer(endpoint, free=args.free, at_once=args.at_once)
            notes = await asyncio.gather(*map(writer.write, filings, markets))
            show(endpoint, list(notes), key, deadlines=args.deadline or [15.0, 60.0], at_once=args.at_once)
    print("\nOne run a tier, so no interval: `ultrafast ab` repeats runs in pairs and gives one.")


def read_key(path: Path) -> dict[str, dict[str, str]] | None:
    """The right figures, by ticker and metric; None where there is no such file.

    Raises:
        ValueError: it is something else.
    """
    if not path.exists():
        return None
    key = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(key, dict) or not all(isinstance(figures, dict) for figures in key.values()):
        raise ValueError(f"{path}: not the figures of each ticker")
    return key


def show(
    endpoint: Endpoint,
    notes: list[Note],
    key: dict[str, dict[str, str]] | None,
    *,
    deadlines: list[float],
    at_once: int,
) -> None:
    """Print the notes, and the deadline curve."""
    print(f"\n== {endpoint.model}, {endpoint.name}")
    right = 0
    for note in notes:
        print(f"  {note.filing.company} ({note.filing.ticker})")
        for metric in filter(note.facts.get, METRICS):
            fact = note.facts[metric]
            expected = (key or {}).get(note.filing.ticker, {}).get(metric)
            right += fact.figure == expected
            remark = "" if expected in (None, fact.figure) else f"  (wrong: it is {expected})"
            print(f"    {metric}: {fact.figure} [{fact.paragraph}]{remark}")
        print("    computed: " + ", ".join(f"{name} {value}" for name, value in sorted(note.figures.items())))
        if note.comment:
            print(f"    {note.comment}")
        for said in note.rejected:
            print(f"    rejected, not in the source: {said[:100]}")
    ready = sorted(moment for note in notes for moment in note.ready)
    parts = len(notes) * NUM_PARTS
    cited = sum(len(note.facts) for note in notes)
    facts = len(notes) * len(METRICS)
    print(f"  {cited} of {facts} facts have their source" + ("" if key is None else f", {right} are right"))
    for deadline in deadlines:
        print(f"  ready within {deadline:g} s: {sum(moment <= deadline for moment in ready)} of {parts} parts")
    curve = ", ".join(f"{ready[-(-len(ready) * share // 4) - 1]:.2f} s" for share in (1, 2, 3, 4))
    print(f"  a quarter, half, three quarters and all of the {len(ready)} parts that came: after {curve}")
    print(f"  up to {at_once} at once; {endpoint.spent}")


if __name__ == "__main__":
    run(main)
