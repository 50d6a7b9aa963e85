"""A running server, as the commands that watch it see it: over HTTP."""

from __future__ import annotations

import http.client
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from ultrafast.engine.status import ModelStatus
from ultrafast.errors import ConfigError, ServerError

_PATH = "/v1/tiers"
_TIMEOUT_S = 5.0
_MAX_BYTES = 16 << 20


class Answer(msgspec.Struct):
    """The body of ``GET /v1/tiers``."""

    object: Literal["list"]
    data: list[ModelStatus]


class _ErrorText(msgspec.Struct):
    message: str


class _ErrorBody(msgspec.Struct):
    error: _ErrorText


class RunningServer:
    """One server; each question is a connection of its own, so that it may go away and come back in between.

    Args:
        url: ``http://HOST[:PORT]`` or ``https://…``; the ``/v1`` of API addresses may follow.

    Raises:
        ConfigError: this is no such URL.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        try:
            parts = urlsplit(self.url)
            self._port = parts.port
        except ValueError as error:
            raise ConfigError(f"--url {url!r} is not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url {url!r} is not the address of a server; it looks like http://127.0.0.1:8000")
        self._host, self._is_secure, self._path = parts.hostname, parts.scheme == "https", parts.path + _PATH

    def status(self) -> list[ModelStatus]:
        """What the server tells of its models now. Raises what `raw_status` raises."""
        return self._decode(self.raw_status()).data

    def raw_status(self) -> bytes:
        """The answer to ``GET /v1/tiers``, checked.

        Raises:
            ServerError: nobody answers, or somebody else, or with an error.
        """
        status, reason, body = self._get()
        if status != 200:
            raise self._refusal(status, reason, body)
        self._decode(body)
        return body

    def _get(self) -> tuple[int, str, bytes]:
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", self._path, headers={"accept": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.reason, answer.read(_MAX_BYTES)
        except TimeoutError:
            raise ServerError(f"{self.url} did not answer within {_TIMEOUT_S:g} s", "see what listens there") from None
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            advice = "start one with `ultrafast serve`, or say where it is with --url"
            raise ServerError(f"no server answers at {self.url} ({reason})", advice) from None
        except http.client.HTTPException:
            raise ServerError(f"what listens at {self.url} does not speak HTTP") from None
        finally:
            connection.close()

    def _refusal(self, status: int, reason: str, body: bytes) -> ServerError:
        if status in (404, 405):
            return ServerError(f"{self.url} is not an Ultrafast server: it has no {_PATH} ({status})")
        try:
            text = msgspec.json.decode(body, type=_ErrorBody).error.message
        except msgspec.DecodeError:
            text = reason
        return ServerError(f"{self.url} answered {status}: {text}", f"it was asked for {_PATH}")

    def _decode(self, body: bytes) -> Answer:
        try:
            return msgspec.json.decode(body, type=Answer)
        except msgspec.DecodeError as error:
            problem = f"{self.url} is not an Ultrafast server, or of another version: in its {_PATH}, {error}"
            raise ServerError(problem) from None
