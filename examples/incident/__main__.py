"""``python -m examples.incident``"""

from __future__ import annotations

from examples.endpoint import Endpoint, endpoints, options, positive, run
from examples.incident.condense import Shape, chunks, condense
from examples.incident.investigate import Report, investigate
from examples.incident.log import Incident, make_log


async def main(argv: list[str] | None = None) -> None:
    """Make the log, investigate it in every tier, print what came of it."""
    parser = options("incident", "Find the root cause of an outage in thousands of log lines, with quoted evidence.")
    parser.add_argument("--lines", type=positive, default=4000, help="of the log, 1,000 at least (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which outage, and its details (%(default)s)")
    parser.add_argument("--chunk", type=positive, default=8, help="lines a request (%(default)s)")
    parser.add_argument("--at-once", type=positive, default=4, help="requests in flight (%(default)s)")
    parser.add_argument("--free", action="store_true", help="the schema does not list what may be quoted")
    parser.add_argument("--whole", action="store_true", help="send every line, not one of each kind")
    args = parser.parse_args(argv)
    if args.lines < 1000:
        parser.error("--lines is 1,000 at least")
    incident = make_log(args.seed, num_lines=args.lines)
    shapes = [Shape(line, 1) for line in incident.lines] if args.whole else condense(incident.lines)
    pieces = chunks(shapes, args.chunk)
    print(f"A synthetic log of {len(incident.lines):,} lines; {len(shapes)} are sent, in {len(pieces)} chunks.")
    async with endpoints(args) as tiers:
        for endpoint in tiers:
            report = await investigate(endpoint, pieces, incident.lines, at_once=args.at_once, free=args.free)
            show(endpoint, report, incident, at_once=args.at_once)
    print("\nOne run a tier, so no interval: `ultrafast ab` repeats runs in pairs and gives one.")


def show(endpoint: Endpoint, report: Report, incident: Incident, *, at_once: int) -> None:
    """Print a report."""
    print(f"\n== {endpoint.model}, {endpoint.name}")
    for finding in report.findings:
        print(f"  {finding.confidence:3} % sure  {finding.line}\n             {finding.meaning}")
    for quote in report.rejected:
        print(f"  rejected, not in the log: {quote[:100]!r}")
    if report.cause is None:
        print("  cause: none that is backed by the log")
    else:
        verdict = "that is what was planted" if report.cause == incident.cause else "what was planted is another"
        print(f"  cause: {report.cause}\n         ({verdict}) {report.explanation}")
    first = "none" if report.first_s is None else f"{report.first_s:.2f} s"
    print(f"  first hypothesis {first}, verdict {report.total_s:.2f} s, up to {at_once} at once; {endpoint.spent}")


if __name__ == "__main__":
    run(main)
