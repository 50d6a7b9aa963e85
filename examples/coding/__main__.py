"""``python -m examples.coding``"""

from __future__ import annotations

from examples.coding.agent import Step, run_agent
from examples.coding.plan import REPOSITORY
from examples.coding.workspace import copy_of
from examples.endpoint import Endpoint, endpoints, options, positive, run

_BAR = 40  # characters of the longest step


async def main(argv: list[str] | None = None) -> None:
    """Mend the repository in every tier, each time in a fresh copy."""
    parser = options("coding", "Mend a failing test in a toy repository, in ten timed steps with tools.")
    parser.add_argument("--socket", action="store_true", help="ask over one WebSocket instead of HTTP")
    parser.add_argument(
        "--free", action="store_true", help="the model chooses tools and writes code as it likes; its code is run"
    )
    parser.add_argument("--max-steps", type=positive, default=20, help="of a free run (%(default)s)")
    args = parser.parse_args(argv)
    how = "WebSocket" if args.socket else "HTTP"
    async with endpoints(args) as tiers:
        for endpoint in tiers:
            with copy_of(REPOSITORY) as workspace:
                steps = await run_agent(
                    endpoint, workspace, socket=args.socket, free=args.free, max_steps=args.max_steps
                )
                show(endpoint, steps, mended=workspace.passes(), how=how)
    print("\nOne run a tier, so no interval: `ultrafast bench agent` and `ultrafast ab` repeat runs and give one.")


def show(endpoint: Endpoint, steps: list[Step], *, mended: bool, how: str) -> None:
    """Print the steps as a timeline, and where the time went."""
    print(f"\n== {endpoint.model}, {endpoint.name}, over {how}")
    longest = max(step.model_s + step.tool_s for step in steps)
    for number, step in enumerate(steps, 1):
        model, tool = (round(_BAR * seconds / longest) for seconds in (step.model_s, step.tool_s))
        times = f"model {step.model_s:6.2f} s, tool {step.tool_s:5.2f} s"
        print(f"  {number:2} {step.tool or 'no call':10} {times}  {'█' * model}{'░' * tool}")
        if step.why:
            print(f"     {' '.join(step.why.split())[:100]}")
    model_s, tool_s = sum(step.model_s for step in steps), sum(step.tool_s for step in steps)
    total = model_s + tool_s
    print(f"  the tests {'pass' if mended else 'still fail'} after {len(steps)} steps and {total:.2f} s")
    print(f"  model and network {model_s:.2f} s ({model_s / total:.0%}), tools {tool_s:.2f} s; one at a time")
    print(f"  {endpoint.spent}")


if __name__ == "__main__":
    run(main)
