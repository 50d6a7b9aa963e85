"""JSON Schemas for constrained decoding: checked, so that what is promised is kept, and put as the library wants them.

llguidance makes a grammar of a schema, but reads some of it in its own way. What it would leave out or get wrong is
refused here, with the place; what it only calls differently is rewritten: references become names, patterns are
translated, old forms become those of draft 2020-12, and what can never end, such as an object that must contain itself,
becomes ``false``.

JSON is written as ``json.dumps`` does, with one space after ``,`` and ``:`` and no other. A model that may write any
white space may write nothing else; and these are the tokens that chat templates replay. No character is escaped that
need not be (``\\u0061``), or the name of a property could come in disguise. So the only control characters in outputs
are ``\\b \\f \\n \\r \\t``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ultrafast.chat.schema_graph import check_chains, drop_endless
from ultrafast.chat.schema_keywords import SchemaProblem
from ultrafast.chat.schema_reader import SchemaReader

_MAX_LENGTH = 256 << 10  # characters of what the library is given
_MAX_REASON = 300  # characters of what the library says
_FORM = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'bfnrt"\\',
}
_IN_OUR_WORDS = {
    "oneOf constraints are not supported": "alternatives of a oneOf must differ in a constant or in type; or use anyOf",
    "Unsatisfiable schema": "nothing satisfies it",
    "Regex is empty": "no text satisfies a pattern, format and length that it has together",
    "Unable to determine if regex is empty": "a pattern, format and length that it has together are too complex",
    "lookarounds not supported": "^ and $ are supported at the ends of a pattern only",
    "are not disjoint": "patternProperties of one object must not match the same names",
    "are disjoint": "patternProperties of one object must not match the same names, which these may",
}


def library_schema(schema: Mapping[str, Any] | bool, *, lenient: bool = False) -> str:
    """A schema as llguidance takes it: JSON text, for ``%json`` in a Lark grammar.

    Args:
        schema: JSON Schema of draft 2020-12, or of an older one.
        lenient: leave out what cannot be guaranteed; the rest is.

    Raises:
        SchemaProblem: it is wrong, exceeds a limit, has a keyword that cannot be guaranteed, or nothing satisfies it.
    """
    root, definitions = SchemaReader(schema, lenient=lenient).read()
    drop_endless(root, definitions)
    check_chains(root, definitions)
    whole = root if isinstance(root, dict) else {"allOf": [root]}
    text = json.dumps({**whole, "$defs": definitions, "x-guidance": _FORM}, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SchemaProblem((), "it has a lone surrogate; send valid Unicode") from None
    reason = _refused(text)
    if reason is not None:
        raise SchemaProblem((), reason)
    return text


@lru_cache(maxsize=128)
def _refused(schema: str) -> str | None:
    """Why there is no grammar for a schema; None if there is one. The library bounds the time to find out."""
    if len(schema) > _MAX_LENGTH:
        return f"it has {len(schema)} characters without what only describes, and {_MAX_LENGTH} are allowed"
    from llguidance import LLMatcher  # takes its time, and most servers are asked for tools or schemas late or never

    try:
        message: str = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema))
    except ValueError as error:  # nested too deep
        message = str(error)
    for theirs, ours in _IN_OUR_WORDS.items():
        if theirs in message:
            return ours
    return " ".join(message.split())[:_MAX_REASON] or None
