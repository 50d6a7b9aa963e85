"""The `ultrafast` command: one file a subcommand, each of which parses, calls and prints.

Nothing heavy is imported before a subcommand runs (tests/cli/test_cli.py), so that `--help` stays quick. Errors raised
on purpose become one line on stderr.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from ultrafast import __version__
from ultrafast.cli import ab, bench, chat, generate, info, models, plan, pull, serve, simulate, tiers, top, verify
from ultrafast.errors import UltrafastError

# Plain help: drawing it with rich would more than double the time to show it (docs/dependencies.md).
app = typer.Typer(
    name="ultrafast",
    help="Speed as a service tier for language models: serve, chat and measure, on the processors you have.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"ultrafast {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """What comes before the subcommand; described by ``app`` itself."""


for command in (
    serve.serve,
    tiers.tiers,
    top.top,
    chat.chat,
    generate.generate,
    models.models,
    pull.pull,
    info.info,
    plan.plan,
):
    app.command()(command)
app.add_typer(bench.app, name="bench")
app.add_typer(ab.app, name="ab")
app.add_typer(simulate.app, name="simulate")
app.add_typer(verify.app, name="verify")


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 an error or a closed pipe, 2 wrong usage, 130 interrupted."""
    _make_stdout_usable()
    try:
        try:
            app(prog_name="ultrafast")
        finally:
            sys.stdout.flush()
    except UltrafastError as error:
        print(f"ultrafast: error: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # The reader has left (`… | head`). Python flushes stdout once more at exit: let that go nowhere.
        _discard_stdout()
        sys.exit(1)
    except OSError as error:
        if error.filename is not None:  # not about stdout, and not raised on purpose
            raise
        _discard_stdout()
        print(f"ultrafast: error: cannot write the output: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def _make_stdout_usable() -> None:
    """A closed stdout swallows what is printed, and one that is not Unicode shows ? for what it cannot."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - as long as the process
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _discard_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
