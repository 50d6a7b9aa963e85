"""`ultrafast serve`: a model behind the OpenAI API."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ultrafast.cli.options import DEFAULT_MODEL, Context, Isa, Model, Threads


def serve(
    model: Model = DEFAULT_MODEL,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    threads: Threads = None,
    isa: Isa = None,
    context: Context = None,
) -> None:
    """Serve a model over the OpenAI API (Chat Completions and Responses).

    Ctrl-C finishes what runs and leaves; a second one leaves at once.

    Example: ultrafast serve --port 8080
    """
    started_at = time.monotonic()
    from ultrafast.cli.progress import ensure_on_disk
    from ultrafast.engine.engine import Engine
    from ultrafast.engine.loop import EngineLoop
    from ultrafast.serving.server import bind, run

    listener = bind(host, port)  # before the model: a port in use is told at once
    ensure_on_disk(model)
    engine = Engine(model, threads=threads, isa=isa, context=context)
    run([EngineLoop(engine)], listener, started_at=started_at)
