"""A headless Chromium that opens files, and tells what they ask for and complain of."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import matplotlib.image
import numpy as np

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

_LIMIT_S = 120.0


@dataclass
class Visit:
    """What came of opening a file.

    Attributes:
        requests: addresses asked for, that of the file first.
        complaints: whatever the console shows, refusals of the page's own policy among it.
        overflow: pixels by which the page is wider than the window.
        brightness: mean of the picture, 0 to 1.
        texts: of all elements that show any in a plot.
    """

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    overflow: int = 0
    brightness: float = 0.0
    texts: list[str] = field(default_factory=list)


def visit(paths: Sequence[Path], *, dark: bool = False, width: int = 1100) -> list[Visit]:
    """Opens each file in a tab of its own."""

    async def run() -> list[Visit]:
        async with (
            _chromium() as address,
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=0) as socket,
        ):
            return [await _Tab(socket).look(path, dark, width) for path in paths]

    return asyncio.run(asyncio.wait_for(run(), _LIMIT_S))


class _Tab:
    """One tab over the DevTools protocol; calls one after another."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._session: str | None = None
        self._number = 0
        self._loaded = False
        self.visit = Visit()

    async def look(self, path: Path, dark: bool, width: int) -> Visit:
        target = await self._call("Target.createTarget", url="about:blank")
        attached = await self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self._call(f"{domain}.enable")
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self._call("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        await self._call("Emulation.setDeviceMetricsOverride", **size)
        await self._call("Page.navigate", url=path.as_uri())
        while not self._loaded:
            self._note(await self._socket.receive_json())
        self.visit.overflow = await self._evaluate("document.documentElement.scrollWidth - innerWidth")
        self.visit.texts = await self._evaluate("[...document.querySelectorAll('svg text')].map(t => t.textContent)")
        picture = await self._call("Page.captureScreenshot", format="png")
        pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(picture["data"])))
        self.visit.brightness = float(np.mean(pixels[..., :3]))
        return self.visit

    async def _evaluate(self, expression: str) -> Any:
        return (await self._call("Runtime.evaluate", expression=expression, returnByValue=True))["result"]["value"]

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        await self._socket.send_json({"id": self._number, "method": method, "params": params, **session})
        while True:
            message: dict[str, Any] = await self._socket.receive_json()
            if message.get("id") == self._number and message.get("sessionId") == self._session:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("sessionId") != self._session:
            return
        match message:
            case {"method": "Network.requestWillBeSent", "params": {"request": {"url": url}}}:
                self.visit.requests.append(url)
            case {"method": "Log.entryAdded", "params": {"entry": entry}}:
                self.visit.complaints.append(entry["text"])
            case {"method": "Runtime.consoleAPICalled" | "Runtime.exceptionThrown"}:
                self.visit.complaints.append(str(message["params"]))
            case {"method": "Page.loadEventFired"}:
                self._loaded = True


@asynccontextmanager
async def _chromium() -> AsyncIterator[str]:
    """The address of a fresh browser's DevTools."""
    assert CHROMIUM
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
        places = ("--remote-debugging-port=0", f"--user-data-dir={profile}")
        quiet = {"stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.PIPE}
        environment = {**os.environ, "HOME": profile}
        process = await asyncio.create_subprocess_exec(CHROMIUM, *flags, *places, **quiet, env=environment)
        assert process.stderr
        try:
            while line := (await process.stderr.readline()).decode():
                if found := re.search(r"DevTools listening on (ws://\S+)", line):
                    drain = asyncio.create_task(process.stderr.read())
                    yield found[1]
                    process.terminate()
                    await drain
                    return
            raise AssertionError("Chromium ended before it listened")
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
