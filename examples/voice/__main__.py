"""``python -m examples.voice``"""

from __future__ import annotations

import argparse
from statistics import median

from examples.endpoint import Endpoint, endpoints, options, positive, run
from examples.voice.budget import CLAUSE_TOKENS, Pipeline, thinking_tokens, tokens_in
from examples.voice.call import Turn, call

WINDOWS_MS = (100, 200, 300, 500, 800, 1500)
NEEDED_FOR_P95 = 59  # turns, for an interval at 95 % confidence


def seconds(text: str) -> float:
    """Milliseconds, for `argparse`."""
    number = float(text)
    if not 0 <= number < 1e6:
        raise argparse.ArgumentTypeError(f"{text} ms is no such time")
    return number / 1e3


def speed(text: str) -> float:
    """Tokens a second, for `argparse`."""
    number = float(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text} tokens/s is no speed")
    return number


async def main(argv: list[str] | None = None) -> None:
    """Hold calls in every tier, then say what may be thought."""
    parser = options("voice", "Budget of a voice turn: how much a model may think before it must speak.")
    parser.add_argument("--calls", type=positive, default=1, help="of five turns each, a tier (%(default)s)")
    parser.add_argument("--max-tokens", type=positive, default=60, help="of an answer (%(default)s)")
    parser.add_argument("--patience", type=seconds, default=0.8, metavar="MS", help="silence that a caller bears (800)")
    parser.add_argument("--speed", type=speed, action="append", metavar="TOKENS/S", help="to compare with (60 and 750)")
    for name, what in (
        ("endpointing", "silence until the caller has finished"),
        ("transcript", "until the last words are text"),
        ("voice", "from a clause to its first sound"),
        ("network", "to the caller and back"),
    ):
        default = getattr(Pipeline(), f"{name}_s")
        parser.add_argument(
            f"--{name}", type=seconds, default=default, metavar="MS", help=f"{what} ({default * 1e3:g})"
        )
    parser.add_argument(
        "--detection", type=seconds, default=0.15, metavar="MS", help="until an interruption is known as one (150)"
    )
    args = parser.parse_args(argv)
    pipeline = Pipeline(args.endpointing, args.transcript, args.voice, args.network)
    measured: dict[str, tuple[float, float]] = {}  # TTFT and tokens a second, by tier
    async with endpoints(args) as tiers:
        for endpoint in tiers:
            turns = []
            for _ in range(args.calls):
                turns += await call(endpoint, pipeline, max_tokens=args.max_tokens, detection_s=args.detection)
            show_call(endpoint, turns)
            ttfts = [turn.ttft_s for turn in turns if turn.ttft_s is not None]
            speeds = [turn.tokens_per_s for turn in turns if turn.tokens_per_s is not None]
            if ttfts and speeds:
                measured[endpoint.name] = (median(ttfts), median(speeds))
    columns = {f"{value:g} tok/s": (0.0, value) for value in args.speed or (60.0, 750.0)} | measured
    show_budget(columns)
    show_thinking(columns, pipeline, args.patience)


def show_call(endpoint: Endpoint, turns: list[Turn]) -> None:
    """Print the turns of a tier, and what they come to."""
    print(f"\n== {endpoint.model}, {endpoint.name}: one call at a time; {endpoint.spent}")
    print("  turn  first token   speed        silence heard  underruns  answer")
    for number, turn in enumerate(turns, 1):
        ttft = "none" if turn.ttft_s is None else f"{turn.ttft_s * 1e3:.0f} ms"
        rate = "-" if turn.tokens_per_s is None else f"{turn.tokens_per_s:.0f} tok/s"
        silence = "none" if turn.silence_s is None else f"{turn.silence_s * 1e3:.0f} ms"
        text = " ".join(turn.text.split())
        print(f"  {number:4}  {ttft:>11}  {rate:>10}  {silence:>13}  {len(turn.underruns):9}  {text[:44]}")
        if turn.barge_in is not None:
            print(
                f"        interrupted: silent after {turn.barge_in.silent_s * 1e3:.0f} ms; "
                f"{turn.barge_in.tokens} tokens had come, {turn.barge_in.spoken_words} words were spoken"
            )
    silences = sorted(turn.silence_s for turn in turns if turn.silence_s is not None)
    if silences:
        print(
            f"  silence: median {median(silences) * 1e3:.0f} ms, worst {silences[-1] * 1e3:.0f} ms of {len(silences)}"
        )
    if len(silences) < NEEDED_FOR_P95:
        print(f"  (a 95th percentile needs {NEEDED_FOR_P95} turns: --calls {-(-NEEDED_FOR_P95 // 5)})")


def show_budget(columns: dict[str, tuple[float, float]]) -> None:
    """Print how many tokens come within the windows, at each speed."""
    print("\nTokens that come within a window (for what was measured: after its median time to the first token)")
    print("  window  " + "".join(f"{name:>24}" for name in columns))
    for window in WINDOWS_MS:
        counts = [tokens_in(window / 1e3, rate, ttft_s=ttft) for ttft, rate in columns.values()]
        print(f"  {window:4} ms " + "".join(f"{count:24,}" for count in counts))


def show_thinking(columns: dict[str, tuple[float, float]], pipeline: Pipeline, patience_s: float) -> None:
    """Print what may be thought before speech must start."""
    window = pipeline.window_s(patience_s)
    print(f"\nOf {patience_s * 1e3:.0f} ms of silence, the pipeline leaves {window * 1e3:.0f} ms for the model.")
    for name, (ttft, rate) in columns.items():
        count = thinking_tokens(window, rate, ttft_s=ttft)
        first = f"first token after {ttft * 1e3:.0f} ms" if ttft else "first token at once"
        if count >= 0:
            print(
                f"  {name}: {count:,} tokens may be thought before a clause of {CLAUSE_TOKENS} ({first}, {rate:.0f}/s)"
            )
        else:
            late = ttft + CLAUSE_TOKENS / rate - window
            print(f"  {name}: no thinking; the clause itself is {late * 1e3:.0f} ms late ({first}, {rate:.0f}/s)")


if __name__ == "__main__":
    run(main)
