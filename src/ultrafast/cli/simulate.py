"""`ultrafast simulate …`: a wafer at work."""

from __future__ import annotations

import typer

from ultrafast.cli import simulate_mesh

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def simulate() -> None:
    """Simulate a wafer: one model on a mesh of processing elements.

    Example: ultrafast simulate mesh --mesh 16x16
    """


app.command()(simulate_mesh.mesh)
