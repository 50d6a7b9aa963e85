"""`ultrafast serve`: models behind the OpenAI API."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ultrafast.cli.options import DEFAULT_MODEL, Context, Isa, Threads

if TYPE_CHECKING:
    from ultrafast.config import Config, ModelConfig
    from ultrafast.engine.loop import EngineLoop


def serve(
    config: Annotated[
        Path | None, typer.Option(help="Configuration file, see docs/configuration.md; what is given here beats it.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Serve this model only: a known name, a path, or hf:ORG/REPO[/FILE]; default: those of the "
            f"configuration, else {DEFAULT_MODEL}."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; default: 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one; default: 8000.")
    ] = None,
    threads: Threads = None,
    isa: Isa = None,
    context: Context = None,
) -> None:
    """Serve models over the OpenAI API (Chat Completions and Responses).

    Ctrl-C finishes what runs and leaves; a second one leaves at once.

    Example: ultrafast serve --port 8080
    """
    started_at = time.monotonic()
    from ultrafast.config import Config, load
    from ultrafast.serving.server import bind, run
    from ultrafast.serving.store import open_store

    settings = Config() if config is None else load(config)
    listener = bind(
        settings.server.host if host is None else host, settings.server.port if port is None else port
    )  # before the models: a port in use is told at once
    store = open_store(settings.server.store, days=settings.server.store_days)
    given = {"threads": threads, "isa": isa, "context": context}
    loops = _load(_models(settings, model), {name: value for name, value in given.items() if value is not None})
    run(loops, listener, started_at=started_at, isolation=settings.server.isolate_cache, store=store)


def _models(settings: Config, wanted: str | None) -> dict[str, ModelConfig]:
    from ultrafast.config import ModelConfig

    if wanted is not None:
        return {wanted: settings.models.get(wanted, ModelConfig())}
    return dict(settings.models) or {DEFAULT_MODEL: ModelConfig()}


def _load(models: dict[str, ModelConfig], given: dict[str, Any]) -> list[EngineLoop]:
    from ultrafast.cli.progress import ensure_on_disk
    from ultrafast.engine.engine import Engine
    from ultrafast.engine.loop import EngineLoop
    from ultrafast.errors import ConfigError

    loops: dict[str, EngineLoop] = {}
    for name, options in models.items():
        ensure_on_disk(name)
        if options.draft_model is not None:
            ensure_on_disk(options.draft_model)
        engine = Engine(name, **options.engine_options() | given)
        if engine.model_id in loops:
            raise ConfigError(
                f"two models would be served as {engine.model_id!r}; rename the file of one: {engine.path}"
            )
        loops[engine.model_id] = EngineLoop(engine)
    return list(loops.values())
