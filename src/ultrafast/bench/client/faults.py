"""What goes wrong with a connection, in words."""

from __future__ import annotations

import aiohttp

from ultrafast.bench.client.answer import bounded


def problem_of(error: Exception) -> str:
    """One line on an error that aiohttp or the system raised."""
    match error:
        case aiohttp.ServerDisconnectedError():
            return "the connection was cut before the answer began"
        case aiohttp.ClientPayloadError():
            return "the connection was cut in the middle of the answer"
        case aiohttp.ClientConnectorCertificateError():
            return bounded(f"the certificate of {error.host}:{error.port} is not trusted: {error.certificate_error}")
        case aiohttp.ClientConnectorError():
            reason = error.os_error.strerror or str(error.os_error)
            return bounded(f"no connection to {error.host}:{error.port}: {reason}")
        case aiohttp.WSServerHandshakeError():
            return bounded(f"no WebSocket there, but status {error.status}")
        case aiohttp.ClientResponseError():
            return bounded(f"what answers does not speak HTTP: {error.message}")
        case OSError():
            return bounded(f"the connection failed: {error.strerror or error}")
        case _:
            return bounded(str(error) or type(error).__name__)
