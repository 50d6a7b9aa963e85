"""`ultrafast simulate …`: a planned model at work: one token on a mesh, many users on a service."""

from __future__ import annotations

import typer

from ultrafast.cli import simulate_mesh, simulate_serving

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def simulate() -> None:
    """Simulate a model at work: one token on a mesh of processing elements, or many users on a plan.

    Example: ultrafast simulate mesh --mesh 16x16
    """


app.command()(simulate_mesh.mesh)
app.command()(simulate_serving.serving)
