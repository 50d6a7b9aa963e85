"""Messages and content parts, as both Chat Completions and Responses send them."""

from __future__ import annotations

from msgspec import Struct

from ultrafast.serving.wire.body import refuse

_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class Part(Struct):
    """One content part; only text ones are served."""

    type: str
    text: str | None = None
    refusal: str | None = None


Content = str | list[Part]


def plain_message(role: str, content: Content | None, where: str) -> dict[str, str]:
    """A message as the chat template takes it: system, user or assistant, content one string.

    Args:
        role: as sent.
        content: as sent; an assistant turn may have none.
        where: path of the message in the body, for errors.

    Raises:
        RequestError: 400 for a role or part that is not served, naming it.
    """
    if role not in _ROLES:
        raise refuse(f"{where}.role", f"Invalid role {role[:64]!r}; accepted: {', '.join(_ROLES)}.")
    if content is None:
        if role != "assistant":
            raise refuse(f"{where}.content", f"A {role} message needs content: a string or a list of text parts.")
        content = ""
    return {"role": _ROLES[role], "content": plain_text(content, f"{where}.content")}


def plain_text(content: Content, where: str) -> str:
    """Content as one string; ``where`` is its path in the body.

    Raises:
        RequestError: 400 for a part that is not text, naming it.
    """
    if isinstance(content, str):
        return content
    return "".join(_text(part, f"{where}[{index}]") for index, part in enumerate(content))


def _text(part: Part, where: str) -> str:
    if part.type == "refusal":
        return part.refusal or ""
    if part.type not in _TEXT_PARTS:
        raise refuse(where, f"Content parts of type {part.type[:64]!r} are not supported: this server takes text only.")
    if part.text is None:
        raise refuse(f"{where}.text", "A text part needs a string in 'text'.")
    return part.text
