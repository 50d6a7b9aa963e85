"""`ultrafast pull`: bring a model into the cache."""

from __future__ import annotations

from typing import Annotated

import typer

from ultrafast.cli.progress import download_bar


def pull(
    model: Annotated[str, typer.Argument(help="A known name, hf:ORG/REPO[/FILE], or the path of a GGUF file.")],
) -> None:
    """Fetch a model and check its file.

    Prints the path. What is on disk already is only checked.

    Example: ultrafast pull smollm2-135m
    """
    from ultrafast.models import fetch

    with download_bar(model) as update:
        print(fetch.pull(model, progress=update))
