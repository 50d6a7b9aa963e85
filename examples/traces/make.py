"""Writes the synthetic traces beside it: drawn by a seed, in the schemas of public ones, and of no service at all.

They are short enough for the embedded model. Real traces say how real services are used; their addresses are in
docs/bench-api.md.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

CALLS = 40


def main(folder: Path) -> None:
    """Writes all of them."""
    (folder / "synthetic-azure.csv").write_text("".join(azure(Random(1))))
    (folder / "synthetic-burstgpt.csv").write_text("".join(burstgpt(Random(2))))
    (folder / "synthetic-mooncake.jsonl").write_text("".join(mooncake(Random(3))))


def azure(random: Random) -> list[str]:
    """One call a second on average; short answers to longer prompts, as where code is completed."""
    lines, moment = ["TIMESTAMP,ContextTokens,GeneratedTokens\n"], datetime(2026, 1, 5, 9, tzinfo=UTC)
    for _ in range(CALLS):
        lines.append(f"{moment:%Y-%m-%d %H:%M:%S.%f}0,{_length(random, 150, 400)},{_length(random, 10, 40)}\n")
        moment += timedelta(seconds=random.expovariate(1.0))
    return lines


def burstgpt(random: Random) -> list[str]:
    """Bursts with pauses between them; one call in ten fails, and gets no tokens."""
    lines, second = ["Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"], 0.0
    for place in range(CALLS):
        prompt, output = _length(random, 80, 400), 0 if random.random() < 0.1 else _length(random, 25, 60)
        lines.append(f"{second:.1f},synthetic,{prompt},{output},{prompt + output},API log\n")
        second += random.expovariate(0.15) if place % 8 == 7 else random.expovariate(4.0)
    return lines


def mooncake(random: Random) -> list[str]:
    """Conversations that grow by a block a turn: all blocks but the last are those of the turn before."""
    lines, moment = [], 0.0
    talks: list[list[int]] = [[] for _ in range(6)]
    for turn in range(CALLS):
        moment += random.expovariate(1.0)
        talk = random.choice(talks)
        tokens = 512 * len(talk) + random.randint(60, 400)
        row = {"timestamp": round(moment * 1000), "input_length": tokens, "output_length": _length(random, 20, 48)}
        lines.append(json.dumps({**row, "hash_ids": [*talk, 2 * turn]}) + "\n")
        talk.append(2 * turn + 1)
        if len(talk) > 2:
            talk.clear()
    return lines


def _length(random: Random, median: int, most: int) -> int:
    return max(1, min(most, round(random.lognormvariate(0, 0.7) * median)))


if __name__ == "__main__":
    main(Path(__file__).parent)
