"""How models write tool calls: the marks around the JSON, and the names in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """One way to write calls: ``opening {"name": …, arguments: {…}} closing``, again for each further call.

    Attributes:
        opening: begins a call, in the text; empty: a call is bare JSON, with which an answer begins.
        closing: ends it.
        arguments: what the member with the arguments is called.
        listed: all calls of an answer are elements of one JSON array, within one pair of marks.
        between: calls, or the elements of the array.
    """

    opening: str
    closing: str
    arguments: str = "arguments"
    listed: bool = False
    between: str = "\n"


HERMES = CallSyntax("<tool_call>\n", "\n</tool_call>")
"""Hermes 2 and 3, Qwen 2.5 and 3, SmolLM3; also what models without a syntax of their own are told to write."""

LISTED = CallSyntax("<tool_call>", "</tool_call>", listed=True, between=", ")
"""SmolLM2."""

LLAMA = CallSyntax("", "", arguments="parameters", between="; ")
"""Llama 3.x. Its mark, ``<|python_tag|>``, is a control token: it is no text."""

MISTRAL = CallSyntax("", "", listed=True, between=", ")
"""Mistral. Its mark, ``[TOOL_CALLS]``, is a control token: it is no text."""
