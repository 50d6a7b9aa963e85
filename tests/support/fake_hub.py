"""A Hugging Face hub on a loopback port: model info, file metadata and files, with faults on demand."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(ThreadingHTTPServer):
    """Serves ``files`` (``ORG/REPO``, or ``datasets/ORG/REPO`` -> name -> content).

    Attributes:
        requests: method, path and Range of each request.
        cut_after: close the connection after that many bytes of the next file, once.
        corrupt: send other bytes than announced.
        gated: refuse files as the hub does for a gated repository.
    """

    daemon_threads = True

    def __init__(self, files: dict[str, dict[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.requests: list[tuple[str, str, str | None]] = []
        self.cut_after: int | None = None
        self.corrupt = False
        self.gated = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def fake_hub(files: dict[str, dict[str, bytes]]) -> Iterator[FakeHub]:
    with FakeHub(files) as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def do_GET(self) -> None:
        self.server.requests.append((self.command, self.path, self.headers.get("Range")))
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self._info("/".join(parts[2:4]))
        elif parts[:2] == ["api", "datasets"] and "tree" in parts:
            self._tree("/".join(parts[1:4]))
        elif parts[:2] == ["api", "datasets"]:
            self._info("/".join(parts[1:4]))
        else:
            named = 3 if parts[0] == "datasets" else 2
            self._file("/".join(parts[:named]), "/".join(parts[named + 2 :]))

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _info(self, repo: str) -> None:
        if repo not in self.server.files:
            return self._refuse(404, "RepoNotFound")
        siblings = [{"rfilename": name} for name in self.server.files[repo]]
        return self._answer(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode(), {})

    def _tree(self, repo: str) -> None:
        if repo not in self.server.files:
            return self._refuse(404, "RepoNotFound")
        files = [
            {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for name, content in self.server.files[repo].items()
        ]
        return self._answer(200, json.dumps(files).encode(), {})

    def _file(self, repo: str, name: str) -> None:
        if self.server.gated:
            return self._refuse(403, "GatedRepo")
        content = self.server.files.get(repo, {}).get(name)
        if content is None:
            return self._refuse(404, "EntryNotFound")
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        if self.server.corrupt:
            content = bytes(len(content))
        status = 200
        if wanted := self.headers.get("Range"):
            start = int(wanted.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content, status = content[start:], 206
        return self._answer(status, content, headers)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, b"", {"X-Error-Code": code, "X-Error-Message": code})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.server.cut_after is not None and "ETag" in headers:
            body, self.server.cut_after = body[: self.server.cut_after], None
            self.close_connection = True
        self.wfile.write(body)
