"""What `ultrafast ab` prints and writes: reports, plans, assignments, tables of outcomes."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ultrafast.bench import records
from ultrafast.bench.ab import outcomes, report
from ultrafast.bench.ab.analysis.compare import analyse, finding_of
from ultrafast.bench.ab.run import journal as journals
from ultrafast.bench.ab.run.records import Pair
from ultrafast.bench.ab.run.setup import Setup, arms_of, read_setup
from ultrafast.bench.ab.statistics import planning, speedup
from ultrafast.bench.statistics import describe
from ultrafast.cli.progress import step_bar
from ultrafast.errors import ConfigError


def show(journal: Path, hour: float | None, json_file: Path | None, html_file: Path | None) -> bool:
    """Prints the report of a journal, and writes it.

    Returns:
        whether B failed on success.
    """
    setup, pairs = _read(journal)
    made = report.make(setup, pairs, arms_of(setup), hour=hour)
    print(report.text(made))
    if json_file is not None:
        records.write_document(json_file, report.document(made))
    if html_file is not None:
        report.page(made).write(html_file)
    return made.analysis.success.verdict == "FAIL"


@contextmanager
def pair_bar(done: Collection[Pair], planned: int) -> Iterator[Callable[[Pair], None]]:
    """A function to call after each pair; the bar tells what the test that may be looked at any time says by then."""
    pairs = list(done)
    if pairs:
        print(f"ultrafast: {len(pairs)} of {planned} pairs are in the journal already", file=sys.stderr)
    with step_bar() as step:

        def on_pair(pair: Pair) -> None:
            pairs.append(pair)
            step(_so_far(pairs), len(pairs), planned)

        step("first pair", len(pairs), planned)
        yield on_pair


def write_exposure(journal: Path, path: Path) -> None:
    """Who had what, when: a row a run, for analysis elsewhere."""
    _, pairs = _read(journal)
    names = ("task", "pair", "kind", "arm", "position", "started_at", "wall_s", "ended", "right", "tiers_served")
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(names)
            for pair in pairs:
                for position, run in enumerate(pair.runs, 1):
                    served = sorted({call.tier_served for call in run.calls if call.tier_served})
                    plan = pair.plan
                    about = (plan.task, plan.number, plan.kind, run.arm, position, pair.started_at)
                    writer.writerow((*about, f"{run.wall_s:.6f}", run.ended, int(run.success), " ".join(served)))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def plan_text(journal: Path | None, spread: float, disagree: float, margin: float, rate: float, change: float) -> str:
    """How many tasks and users it takes; shares in, not per cent."""
    source = ""
    if journal is not None:
        setup, pairs = _read(journal)
        analysis = analyse(pairs, arms_of(setup), planned=setup.tasks, margin=setup.margin)
        if math.isnan(analysis.time.spread):
            raise ConfigError(f"{journal}: too few pairs to plan from; two that ended well are the fewest")
        spread = analysis.time.spread
        disagree = (analysis.success.only_a + analysis.success.only_b + 1) / (analysis.success.n + 2)
        source = f" (both from {analysis.pairs} pairs of {journal.name})"
    lines = [
        f"Log-ratios of time spread by {spread:.3g}; {100 * disagree:.3g} % of tasks are right in one arm only{source}",
        "Tasks, each run in both arms, until the speed-up is known (95 %) to within",
        *(f"  {100 * reach:3.0f} %  {planning.tasks_for_ratio(spread, reach):,}" for reach in (0.05, 0.1, 0.2, 0.5)),
        "Tasks to show that B gets no fewer right than A, but for (one-sided 5 %, power 80 %, if it is as good)",
    ]
    for points in sorted({0.01, 0.02, 0.05, margin}):
        needed = max(planning.tasks_for_margin(points, disagree), planning.tasks_that_agree(points))
        lines.append(f"  {100 * points:.3g} points  {needed:,}")
    users = planning.users_for_rate(rate, change)
    lines += [
        f"Users in each arm to see {100 * rate:.3g} % of them become {100 * (rate + change):.3g} % (5 %, power 80 %): "
        f"{users:,}; randomise by user, for weeks",
        "An interval that holds at every look is wider than that of one look, by the factor, after this part of them",
        *(f"  {100 * part:3.0f} %  {_widening(part, users):.2f}" for part in (0.1, 0.25, 0.5, 1.0)),
        "Success decides how many tasks there must be: a speed-up shows long before.",
    ]
    return "\n".join(lines)


def print_assignment(users: Path, salt: str) -> None:
    """A line ``user,arm`` each."""
    try:
        names = [line.strip() for line in users.read_text("utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{users}: not a list of users, one a line: {error}") from None
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("user", "arm"))
    writer.writerows((name, outcomes.arm_of(name, salt)) for name in dict.fromkeys(names))


def show_outcomes(table: Path, unit: str, salt: str | None, planned: int, json_file: Path | None) -> None:
    """Each outcome, arm against arm."""
    rows = outcomes.read_table(table)
    found = outcomes.compare_table(table, rows, unit=unit, salt=salt, planned=planned)
    for outcome in found:
        low, high = outcome.difference.value - outcome.always, outcome.difference.value + outcome.always
        print(
            f"{outcome.name}: A {describe(outcome.a)}, n = {outcome.a.n:,}; B {describe(outcome.b)}, "
            f"n = {outcome.b.n:,}; B less A {describe(outcome.difference)}"
        )
        word = "a difference" if outcome.is_found else "no difference to be told yet"
        print(f"  at whatever look: {low:.4g} to {high:.4g}: {word}")
    if len(found) > 1:
        print(f"{len(found)} outcomes were looked at: each alone holds at 95 %, all together at less.")
    if json_file is not None:
        setup = {"table": table.name, "unit": unit, "salt": salt, "planned": planned, "rows": len(rows)}
        records.write_document(json_file, records.document("ab-outcome", setup, {"outcomes": found}))


def _read(journal: Path) -> tuple[Setup, list[Pair]]:
    held = journals.read(journal)
    return read_setup(journal, held.setup), [held.pairs[number] for number in sorted(held.pairs)]


def _so_far(pairs: list[Pair]) -> str:
    ended = [p.sides for p in pairs if p.plan.kind == "ab" and all(run.ended == "done" for run in p.runs)]
    if not ended:
        return "pairs"
    ratios = speedup.log_ratios([a.wall_s for a, _ in ended], [b.wall_s for _, b in ended])
    return f"B {math.exp(float(np.mean(ratios))):.2f} times as fast: {finding_of(ratios)[0]}"


def _widening(part: float, planned: int) -> float:
    return planning.reach_of_looks(max(1, round(part * planned)), planned) / 1.96
