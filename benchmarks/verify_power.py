"""How often `ultrafast verify` is right: its whole ladder, over simulated endpoints whose truth is known.

    python benchmarks/verify_power.py --runs 200          # minutes a row
    python benchmarks/verify_power.py --runs 20 --only "temperature"

Endpoints walk over next-token distributions of the embedded model (tests/support/simulated_model.py). Prints a row for
each: how many runs ended in which verdict, and by which level. Exits with 1 where equal arms fail in more than 5 % of
the runs, or a difference is found in less than 90 %.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.simulated_model import Line
from support.verifying import SPEED_ONLY, verified
from ultrafast.bench.verify.verdict import Verdict, overall

SAME: dict[str, dict[str, Any]] = {
    "same": {},
    "same, very sure of its tokens": {"sharpness": 3.0},
    "same, broad": {"sharpness": 1.0},
    "same, without log-probabilities": {"chances": False},
    "same, noisy kernels": {"noise": 0.05},
    "same, other kernels in one arm": {"second_own_noise": 0.03},
    "same, Chinese": {"script": "一二三四五六七八九十山川日月"},
}
OTHER: dict[str, dict[str, Any]] = {
    "temperature 1.15": {"second_temperature": 1.15},
    "temperature 1.15, very sure": {"second_temperature": 1.15, "sharpness": 3.0},
    "temperature 1.15, broad": {"second_temperature": 1.15, "sharpness": 1.0},
    "temperature 0.87": {"second_temperature": 0.87},
    "temperature 1.15, Russian": {"second_temperature": 1.15, "script": "абвгдежзиклмнопрст"},
    "4 bits": {"second_weights": "q4_0"},
    "4 bits, without log-probabilities": {"second_weights": "q4_0", "chances": False},
    "4 bits, a third of the error": {"second_weights": "q4_0", "second_share": 0.33},
    "4 bits, a third, without log-probabilities": {"second_weights": "q4_0", "second_share": 0.33, "chances": False},
    "4 bits, by samples alone": {"second_weights": "q4_0", "plan": {"greedy_prompts": []}},
    "5 bits": {"second_weights": "q5_0"},
}
_TIERS: dict[str, Any] = {
    "first_tier": "default",
    "first_echo": "default",
    "second_tier": "ultrafast",
    "second_echo": "ultrafast",
    "plan": {**SPEED_ONLY, "load": 4},
}
_SLOW = Line(idle=60, loaded=15)
HONEST: dict[str, dict[str, Any]] = {
    f"honest tier, {speed} against 15 tokens/s": _TIERS | {"first_line": _SLOW, "second_line": Line(60, speed)}
    for speed in (22, 30, 55)
} | {"honest tier, idle engine": _TIERS | {"first_line": Line(60, 60), "second_line": Line(60, 60)}}
DOWNGRADED: dict[str, dict[str, Any]] = {
    "silently downgraded, 15 tokens/s": _TIERS | {"first_line": _SLOW, "second_line": _SLOW},
    "silently downgraded, 4 to 8 tokens a chunk": _TIERS
    | {"first_line": _SLOW, "second_line": _SLOW, "first_chunk_tokens": 4, "second_chunk_tokens": 8},
    "seven of ten calls downgraded, 100 pairs": _TIERS
    | {
        "first_line": _SLOW,
        "second_line": Line(60, 55),
        "second_slow": _SLOW,
        "second_slow_share": 0.7,
        "plan": {**SPEED_ONLY, "load": 4, "speed_pairs": 100},
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only", default="", help="rows with this in their name")
    arguments = parser.parse_args()
    print(f"| {'endpoints':44} | PASS | FAIL | UNDERPOWERED | by level |")
    print(f"|{'-' * 46}|---|---|---|---|")
    rows = [(cases, limit) for cases, limit in ((SAME | HONEST, False), (OTHER | DOWNGRADED, True))]
    missed = [
        name
        for cases, is_different in rows
        for name, case in cases.items()
        if arguments.only in name and not _row(name, case, arguments.runs, is_different)
    ]
    if missed:
        sys.exit(f"not as promised: {', '.join(missed)}")


def _row(name: str, case: dict[str, Any], runs: int, is_different: bool) -> bool:
    """Whether the promise is kept."""
    found, levels = Counter[Verdict](), Counter[str]()
    for seed in range(runs):
        run = verified(1000 + seed, **case)
        verdict = overall([*run.values()])
        found[verdict] += 1
        levels.update(level.name for level in run.values() if level.verdict is verdict is not Verdict.PASS)
    counts = " | ".join(str(found[verdict]) for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.UNDERPOWERED))
    print(f"| {name:44} | {counts} | {', '.join(f'{n} {level}' for level, n in levels.most_common())} |", flush=True)
    share = found[Verdict.FAIL] / runs
    return share >= 0.9 if is_different else share <= 0.05


if __name__ == "__main__":
    main()
