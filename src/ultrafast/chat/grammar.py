"""The grammar of an answer that has a form, in Lark as llguidance reads it.

Whatever it allows, the answer's parser reads as meant: the arguments of every call satisfy the schema of their tool,
and text contains no mark of a call.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from ultrafast.chat.schema import library_schema
from ultrafast.chat.schema_keywords import SchemaProblem
from ultrafast.chat.syntax import CallSyntax
from ultrafast.errors import RequestError
from ultrafast.types import OutputFormat, Tool, ToolChoice

Thoughts = Literal["none", "optional", "begun"]
"""Whether ``<think>`` … ``</think>`` may come before the answer; ``begun``: the prompt ends within it."""

_MAX_CALLS = 32  # in one answer: a model that repeats itself comes to an end
_SPACE = r"[ \t\n\r]*"
_ANYTHING = "(?s:.*)"
_OTHERS = frozenset(  # keywords by which an object may have more than its `properties`
    """additionalProperties unevaluatedProperties patternProperties $ref $dynamicRef allOf anyOf oneOf not if then else
    dependentSchemas minProperties""".split()  # noqa: SIM905
)


def answer_grammar(
    syntax: CallSyntax, tools: Sequence[Tool], choice: ToolChoice, output: OutputFormat, thoughts: Thoughts
) -> str | None:
    """The grammar of an answer; None: it may be any text.

    Args:
        syntax: of calls.
        tools: that may be called.
        choice: whether they must be, and more than one.
        output: what the text of the answer is.
        thoughts: before it.

    Raises:
        RequestError: a schema cannot be guaranteed; ``param`` is ``output`` or ``tools``.
    """
    if output.kind == "text" and (not tools or _writes_a_token(syntax, tools, choice)):
        return None
    answers, rules = [], []
    has_text = output.kind == "text" and choice.mode != "required"
    if has_text:
        answers.append("TEXT")
        rules += _text(syntax, thoughts)
    elif output.kind != "text" and (choice.mode != "required" or not tools):
        answers.append("json")
        rules.append(f"json: {_output(output)}")
    if tools:
        head = ("head" if syntax.mark else "NEWLINES?") if has_text else _literal(syntax.mark)
        answers.append(f"{head} calls")
        rules += [_calls(syntax, _MAX_CALLS if choice.parallel else 1), *_call(syntax, tools)]
    return "\n".join([*_start(thoughts, has_text), f"answer: {' | '.join(answers)}", *rules, ""])


def _writes_a_token(syntax: CallSyntax, tools: Sequence[Tool], choice: ToolChoice) -> bool:
    """Whether to let the model write its control token, for which a grammar of text has no word."""
    return bool(syntax.token) and choice.mode != "required" and not any(tool.strict for tool in tools)


def _start(thoughts: Thoughts, has_text: bool) -> list[str]:
    """Thoughts, then the answer; text comes with its own newlines. A lazy rule ends with the first match."""
    newlines = "" if has_text else "NEWLINES?"
    start, opening = {
        "none": ("answer", ""),
        "optional": (f"(thought {newlines})? answer", rf"{_SPACE}<think>"),
        "begun": (f"thought {newlines} answer", ""),
    }[thoughts]
    thought = [] if thoughts == "none" else [rf"thought[lazy]: /{opening}{_ANYTHING}<\/think>/"]
    return [f"start: {start}", r"NEWLINES: /\n{1,2}/", *thought]


def _text(syntax: CallSyntax, thoughts: Thoughts) -> list[str]:
    """``TEXT`` in which no call begins, and ``head``: text up to the mark of the first call."""
    no_thought = rf" & ~/{_SPACE}<think>{_ANYTHING}/" if thoughts == "optional" else ""
    if not syntax.opening:
        brackets = r"\{\[" if syntax.listed else r"\{"
        return [rf"TEXT: /{_SPACE}([^ \t\n\r{brackets}]{_ANYTHING})?/{no_thought}"]
    return [
        f"TEXT: /{_ANYTHING}/ & ~/{_ANYTHING}{syntax.mark}{_ANYTHING}/{no_thought}",
        "head[lazy]: HEAD",
        f"HEAD: /{_ANYTHING}{syntax.mark}/{no_thought}",
    ]


def _calls(syntax: CallSyntax, most: int) -> str:
    """``calls``: what follows the mark of the first one."""
    space = syntax.opening.removeprefix(syntax.mark)
    if syntax.listed:
        again = f"({_literal(syntax.between)} call){{0,{most - 1}}}" if most > 1 else ""
        return f"calls: {_literal(space + '[')} call {again} {_literal(']' + syntax.closing)}"
    closing = _literal(syntax.closing)
    again = f"({_literal(syntax.between + syntax.opening)} call {closing}){{0,{most - 1}}}" if most > 1 else ""
    return f"calls: {_literal(space)} call {closing} {again}"


def _call(syntax: CallSyntax, tools: Sequence[Tool]) -> list[str]:
    """``call``: one JSON object. Its words are separate lexemes, as in JSON of a schema, which may stand in its place
    where no mark tells them apart."""
    bodies = [f'{_literal(json.dumps(tool.name))} ", " key ": " arguments_{n}' for n, tool in enumerate(tools)]
    return [
        rf'call: "{{" "\"name\"" ": " ({" | ".join(bodies)}) "}}"',
        f"key: {_literal(json.dumps(syntax.arguments))}",
        *(f"arguments_{n}: {_arguments(tool)}" for n, tool in enumerate(tools)),
    ]


def _arguments(tool: Tool) -> str:
    """JSON that satisfies the tool's schema. Where that cannot be had and the tool is not strict, it satisfies what is
    supported of the schema, or is any object."""
    kind = tool.parameters.get("type", "object")
    problem = "it is not an object's"
    if kind == "object" or (isinstance(kind, list) and "object" in kind):
        schema = _closed({**tool.parameters, "type": "object"})
        for lenient in (False,) if tool.strict else (False, True):
            try:
                return f"%json {library_schema(schema, lenient=lenient)}"
            except SchemaProblem as error:
                problem = str(error)
    if tool.strict:
        raise RequestError(f"the schema of the tool {tool.name!r} cannot be guaranteed: {problem}", param="tools")
    return f"%json {library_schema({'type': 'object'})}"


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Without members that nobody named, unless something in the schema may speak of others: models make up arguments
    when they can."""
    named, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(named, dict) or not isinstance(required, list) or _OTHERS & schema.keys():
        return schema
    return {**schema, "additionalProperties": False} if named.keys() >= set(map(str, required)) else schema


def _output(output: OutputFormat) -> str:
    try:
        return f"%json {library_schema({'type': 'object'} if output.kind == 'json_object' else output.schema or {})}"
    except SchemaProblem as error:
        raise RequestError(f"the schema of the output cannot be guaranteed: {error}", param="output") from None


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""
