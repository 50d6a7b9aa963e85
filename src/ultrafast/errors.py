"""Every error that Ultrafast raises on purpose.

::

    UltrafastError
    ├── ConfigError          an option, environment variable or configuration value is wrong
    │   └── IsaError         the named instruction set is unknown or not available here
    ├── ModelNotFound        no such model name, path or hub file
    ├── ModelFileError       the model file is malformed, truncated or not supported
    ├── DownloadError        a download failed or did not match its checksum
    ├── ResourceError        the machine has too little memory for what was asked
    ├── ServerError          no Ultrafast server answers at a URL, or it refuses to
    └── RequestError         a request cannot be served; carries what HTTP needs
        ├── PromptTooLong    prompt (plus output) does not fit the context
        ├── TemplateError    the chat template refused the messages or broke its bounds
        └── QueueFull        no slot, and no room to wait or none in time; try again later

Messages say what was wrong, where, and what to do. The service maps ``RequestError`` to its status; the
command line prints any of them as one line.
"""

from __future__ import annotations

import os


class UltrafastError(Exception):
    """Base of every error raised on purpose."""


class ConfigError(UltrafastError):
    """An option, environment variable or configuration value is wrong."""


class IsaError(ConfigError):
    """The named instruction set is unknown, not built in, or not supported by this processor."""


class ModelNotFound(UltrafastError):
    """No such model name, path or hub file."""


class ModelFileError(UltrafastError):
    """The model file is malformed, truncated, hostile or not supported."""

    def __init__(self, path: str | os.PathLike[str], problem: str) -> None:
        super().__init__(f"{os.fspath(path)}: {problem}")
        self.path = os.fspath(path)
        self.problem = problem


class DownloadError(UltrafastError):
    """A download failed or did not match its checksum."""


class ResourceError(UltrafastError):
    """The machine has too little memory (or address space) for what was asked."""


class ServerError(UltrafastError):
    """No Ultrafast server answers at a URL, or it refuses to.

    Args:
        problem: what is wrong, without what to do about it.
        advice: what to do.
    """

    def __init__(self, problem: str, advice: str = "say where yours is with --url") -> None:
        super().__init__(f"{problem}; {advice}")
        self.problem = problem


class RequestError(UltrafastError):
    """A request that cannot be served, with what an HTTP answer needs.

    Args:
        message: what was wrong and what to do.
        status: HTTP status code.
        type: OpenAI error type, e.g. ``invalid_request_error``.
        code: machine-readable code, or ``None``.
        param: the request field at fault, or ``None``.
        retry_after: seconds after which a retry makes sense, or ``None``.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type
        self.code = code
        self.param = param
        self.retry_after = retry_after


class PromptTooLong(RequestError):
    """The prompt, or the prompt with the output asked for, does not fit the context.

    Args:
        message: what was wrong and what to do.
        param: the request field at fault.
        tokens: of the prompt, at least, when it alone is too long.
        limit: the most that such a prompt may have.
    """

    def __init__(
        self, message: str, *, param: str | None = None, tokens: int | None = None, limit: int | None = None
    ) -> None:
        super().__init__(message, code="context_length_exceeded", param=param)
        self.tokens = tokens
        self.limit = limit


class TemplateError(RequestError):
    """The chat template refused the messages, is broken, or exceeded its time or size bound."""

    def __init__(self, message: str, *, param: str | None = "messages") -> None:
        super().__init__(message, code="invalid_prompt", param=param)


class QueueFull(RequestError):
    """No slot is free, and there is no room to wait for one, or none came free in time."""

    def __init__(self, message: str, *, code: str = "rate_limit_exceeded", retry_after: float = 1.0) -> None:
        super().__init__(message, status=429, type="rate_limit_error", code=code, retry_after=retry_after)
