"""How models write tool calls: the marks around the JSON, and the names in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """One way to write calls: ``opening {"name": …, arguments: {…}} closing``, again for each further call.

    Attributes:
        opening: begins a call; empty: nothing does that could be read, and an answer that begins with the JSON of a
            call is one.
        closing: ends it.
        arguments: what the member with the arguments is called.
        listed: all calls of an answer are elements of one JSON array, within one pair of marks.
        between: calls, or the elements of the array.
        token: a control token, which is no text, that the model wants to write first.
    """

    opening: str
    closing: str
    arguments: str = "arguments"
    listed: bool = False
    between: str = "\n"
    token: str = ""

    @property
    def mark(self) -> str:
        """The opening without the whitespace around it, by which calls are recognised."""
        return self.opening.strip()


HERMES = CallSyntax("<tool_call>\n", "\n</tool_call>")
"""Hermes 2 and 3, Qwen 2.5 and 3, SmolLM3; also what models without a syntax of their own are told to write."""

LISTED = CallSyntax("<tool_call>", "</tool_call>", listed=True, between=", ")
"""SmolLM2."""

LLAMA = CallSyntax("", "", arguments="parameters", between="; ")
"""Llama 3.x."""

MISTRAL = CallSyntax("", "", listed=True, between=", ", token="[TOOL_CALLS]")
"""Mistral 7B and Nemo."""
