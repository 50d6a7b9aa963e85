"""`ultrafast top`: the lanes and requests of a running server, live."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from ultrafast.cli.options import DEFAULT_URL, Url

if TYPE_CHECKING:
    from rich.console import Console

    from ultrafast.cli.running import RunningServer


def top(
    url: Url = DEFAULT_URL,
    interval: Annotated[float, typer.Option(min=0.1, max=60.0, help="Seconds from one look to the next.")] = 0.5,
) -> None:
    """Watch the lanes and requests of a running server.

    q or Ctrl-C leaves. When the output is not a terminal, one look is printed.

    Example: ultrafast top --interval 1
    """
    from rich.console import Console

    from ultrafast.cli import lanes
    from ultrafast.cli.running import RunningServer

    server = RunningServer(url)
    console = Console(highlight=False, markup=False)
    if not sys.stdout.isatty():
        console.print(lanes.frame(server.status(), server.url, width=console.width, height=None))
        return
    with suppress(KeyboardInterrupt):
        _watch(server, console, interval)


def _watch(server: RunningServer, console: Console, interval: float) -> None:
    from rich.live import Live

    from ultrafast.cli import lanes
    from ultrafast.errors import ServerError

    models, problem = server.status(), ""
    with Live(console=console, screen=True, auto_refresh=False) as live, _keys() as is_leaving:
        while True:
            width, height = console.size
            live.update(lanes.frame(models, server.url, width=width, height=height, problem=problem), refresh=True)
            if is_leaving(interval):
                return
            try:
                models, problem = server.status(), ""
            except ServerError as error:
                problem = error.problem


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """A function that waits so many seconds and says whether q was pressed meanwhile, at once if so."""
    try:
        import termios
        import tty

        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)
    except (ImportError, OSError, termios.error):  # no keyboard, or none that can be read by the key: Ctrl-C is left
        yield _no_key
        return
    tty.setcbreak(keyboard)
    try:
        yield lambda seconds: _is_q_pressed(keyboard, seconds)
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _no_key(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _is_q_pressed(keyboard: int, seconds: float) -> bool:
    import select

    deadline = time.monotonic() + seconds
    while (rest := deadline - time.monotonic()) > 0:
        if select.select([keyboard], [], [], rest)[0]:
            keys = os.read(keyboard, 64)
            if not keys or b"q" in keys.lower():  # none: the terminal is gone
                return True
    return False
