"""The progress bar of downloads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager


def ensure_on_disk(model: str) -> None:
    """Downloads the model, under a bar, when it is not on disk."""
    from ultrafast.models import fetch

    with download_bar(model) as update:
        fetch.resolve(model, progress=update)


@contextmanager
def download_bar(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """A function to call with the bytes done and the total; the bar appears on stderr with the first call."""
    with ExitStack() as stack:
        show: Callable[[int, int | None], None] | None = None

        def update(done: int, total: int | None) -> None:
            nonlocal show
            if show is None:
                show = _start(title, stack)
            show(done, total)

        yield update


def _start(title: str, stack: ExitStack) -> Callable[[int, int | None], None]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    progress = stack.enter_context(Progress(*columns, console=Console(stderr=True)))
    task = progress.add_task(title)
    return lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def step_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A function to call with what comes next, the steps done and their number.

    On a terminal it moves a bar that goes away at the end; elsewhere it prints a line a step, once the first is done.
    """
    if not sys.stderr.isatty():
        yield lambda title, done, total: print(f"{done}/{total} {title}", file=sys.stderr) if done else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("")
        yield lambda title, done, total: progress.update(task, description=title, completed=done, total=total)


@contextmanager
def call_bar() -> Iterator[Callable[[str, int, int, int, int], None]]:
    """A function to call with what goes on, calls ended, their number (0: nobody knows), those that failed, and the
    tokens of their answers.

    On a terminal it moves a bar that goes away at the end; elsewhere it prints a line for each new thing that goes on.
    """
    if not sys.stderr.isatty():
        last = ""

        def print_new(title: str, ended: int, total: int, failed: int, tokens: int) -> None:
            nonlocal last
            if title != last:
                print(f"{ended}/{total or '?'} {title}", file=sys.stderr)
                last = title

        yield print_new
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    counts = TextColumn("{task.fields[tokens]:,} tokens, {task.fields[failed]} failed")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), counts, TimeElapsedColumn())
    # Drawing shares the machine with what is measured: often enough to be read is enough.
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as progress:
        task = progress.add_task("", total=None, tokens=0, failed=0)

        def show(title: str, ended: int, total: int, failed: int, tokens: int) -> None:
            progress.update(task, description=title, completed=ended, total=total or None, tokens=tokens, failed=failed)

        yield show
