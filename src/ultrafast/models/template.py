"""Chat messages to prompt text, with the template that came in the model file.

Templates are programs from strangers: they run in `BoundedEnvironment`, with what Hugging Face gives them
(``raise_exception``, ``strftime_now``, ``tojson``, loop controls) and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2

from ultrafast.errors import TemplateError
from ultrafast.models.bounds import Budget, OutOfBoundsError, budget
from ultrafast.models.sandbox import BoundedEnvironment
from ultrafast.models.template_filters import TEMPLATE_FILTERS
from ultrafast.types import Message

_MAX_SOURCE = 128 << 10  # characters of a template; the longest ones in use have about a fifth
_MAX_DEPTH = 50  # of values in messages
_MAX_REASON = 500  # characters of an error that a template words itself


class ChatTemplate:
    """A compiled chat template. Rendering is safe from several threads, and from hostile templates.

    Args:
        source: Jinja source, or None if the model file has none.
        variables: ``bos_token``, ``eos_token``, … given to every rendering.
    """

    def __init__(self, source: str | None, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)
        # A broken template must not keep raw prompts from being served, so its error waits for the first rendering.
        self._template: jinja2.Template | None = None
        self._problem = "the model file has no chat template; send a raw prompt (a completion) instead of chat messages"
        if source is not None:
            self._compile(source)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt text for ``messages``.

        Raises:
            TemplateError: no template, a broken one, one that refuses these messages (with its own words), or one that
                wants more time, memory or output than a rendering may have.
        """
        if self._template is None:
            raise TemplateError(self._problem)
        variables = {
            **self._variables,
            "messages": [_plain(message, _MAX_DEPTH) for message in messages],
            "tools": None if tools is None else [_plain(tool, _MAX_DEPTH) for tool in tools],
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        token = budget.set(Budget())
        try:
            return self._run(self._template, variables)
        except _RefusalError as refusal:
            raise TemplateError(str(refusal)) from None
        except OutOfBoundsError as problem:
            raise TemplateError(f"the chat template was stopped: it {problem}") from None
        except Exception as error:  # whatever a template can make Python raise
            raise TemplateError(f"the chat template failed: {_describe(error)}") from None
        finally:
            budget.reset(token)

    @staticmethod
    def _run(template: jinja2.Template, variables: dict[str, Any]) -> str:
        pay = budget.get()
        pay.admit(variables)
        pieces = []
        size = 0
        for piece in template.generate(variables):
            pieces.append(piece)
            pay.room(size := size + len(piece))
        return "".join(pieces)

    def _compile(self, source: str) -> None:
        if len(source) > _MAX_SOURCE:
            self._problem = f"the chat template has {len(source)} characters; at most {_MAX_SOURCE} are supported"
            return
        try:
            self._template = _ENVIRONMENT.from_string(source)
        except Exception as error:  # a syntax error, or nesting too deep for Jinja's or Python's parser
            self._problem = f"the model file's chat template is broken: {_describe(error)}"


class _RefusalError(Exception):
    """The template called ``raise_exception``."""


def _raise_exception(message: Any) -> NoReturn:
    raise _RefusalError(budget.get().text(message)[:_MAX_REASON])


def _strftime_now(format: str) -> str:
    if len(format) > _SHORT_FORMAT or re.search(r"%[^a-zA-Z%]*\d", format):
        raise OutOfBoundsError("wants a date format that is too long or has a width")
    return datetime.now().strftime(format)


_SHORT_FORMAT = 100
_ENVIRONMENT = BoundedEnvironment(
    TEMPLATE_FILTERS, {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
)


def _plain(value: Any, levels: int) -> Any:
    """A copy in plain lists, dicts and scalars: anything else could carry methods that the sandbox does not know."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if levels == 0:
        raise TemplateError(f"messages are nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {str(key): _plain(item, levels - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, levels - 1) for item in value]
    if isinstance(value, str):
        return str.__str__(value)  # a string enum, say
    raise TemplateError(f"messages hold a {type(value).__name__}; only JSON values are allowed")


def _describe(error: Exception) -> str:
    text = str(error)[:_MAX_REASON] or type(error).__name__
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{text} (line {error.lineno})"
    return text if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {text}"
