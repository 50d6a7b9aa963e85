"""The `ultrafast` command: one file a subcommand, each of which parses, calls and prints.

Nothing heavy is imported before a subcommand runs (tests/cli/test_cli.py), so that `--help` stays quick. Errors raised
on purpose become one line on stderr.
"""

from __future__ import annotations

import os
import sys

import typer

from ultrafast.cli import bench, chat, generate, info, models, pull, serve
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
for command in (serve.serve, chat.chat, generate.generate, models.models, pull.pull, info.info):
    app.command()(command)
app.add_typer(bench.app, name="bench")


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 an error or a closed pipe, 2 wrong usage, 130 interrupted."""
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
