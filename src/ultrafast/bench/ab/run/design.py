"""Which pairs are run, and in what order: decided before the first one, by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ultrafast.bench.ab.run.records import Kind, Plan, Task


def pairs(tasks: Sequence[Task], *, aa_share: float, warmups: int, seed: int) -> list[Plan]:
    """Warm-ups, then every task once under both arms, with A/A pairs spread among them.

    Args:
        aa_share: A/A pairs for each A/B pair; rounded up, so that any share above 0 gives one.
        warmups: pairs that are run first and dropped.
        seed: of the coins, and of the seeds that the runs get: the same in both arms, another for every task.
    """
    coins = random.Random(seed)
    num_same = -int(-aa_share * len(tasks) // 1)
    planned: list[tuple[Kind, str]] = [("ab", task.id) for task in tasks]
    for number in range(num_same):
        planned.insert(coins.randrange(len(planned) + 1), ("aa", tasks[number % len(tasks)].id))
    planned = [("warmup", tasks[number % len(tasks)].id) for number in range(warmups)] + planned
    seeds = {task.id: seed + number for number, task in enumerate(tasks)}
    return [
        Plan(number, kind, task, coins.choice(("Aa", "aA") if kind == "aa" else ("AB", "BA")), seeds[task])
        for number, (kind, task) in enumerate(planned)
    ]
