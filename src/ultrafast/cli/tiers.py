"""`ultrafast tiers`: the lanes of a running server."""

from __future__ import annotations

from ultrafast.cli.options import DEFAULT_URL, Json, Url


def tiers(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show the lanes of a running server.

    Slots and queues, what happens when they are full, the load now and the speed measured.

    Example: ultrafast tiers --url http://127.0.0.1:8000
    """
    from ultrafast.cli.running import RunningServer

    server = RunningServer(url)
    if as_json:
        import msgspec

        print(msgspec.json.format(server.raw_status()).decode())
        return
    from rich.console import Console

    from ultrafast.cli import lanes

    console = Console(highlight=False, markup=False)
    for model in server.status():
        console.print(lanes.overview(model, width=console.width))
