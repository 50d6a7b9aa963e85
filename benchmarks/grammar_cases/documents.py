"""JSON as it occurs, with its schema: what masks are measured along."""

from __future__ import annotations

from typing import Any


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_TICKET = _object(
    id={"type": "string", "pattern": "^[A-Z]{2,5}-[0-9]{1,6}$"},
    title=_TEXT,
    status={"enum": ["open", "in progress", "blocked", "done"]},
    created={"type": "string", "format": "date-time"},
    estimate={"anyOf": [{"type": "number", "minimum": 0, "maximum": 100}, {"type": "null"}]},
    labels=_list(_TEXT),
    comments=_list(_object(author={"type": "string", "format": "email"}, text=_TEXT)),
)
_TREE = {
    "$ref": "#/$defs/node",
    "$defs": {"node": _object(name=_TEXT, size=_COUNT, children=_list({"$ref": "#/$defs/node"}))},
}

DOCUMENTS: list[tuple[str, dict[str, Any], Any]] = [
    (
        "ticket",
        _TICKET,
        {
            "id": "UF-1024",
            "title": "Answers of the fast lane stop while a long prompt is read",
            "status": "in progress",
            "created": "2026-03-04T09:15:27Z",
            "estimate": 2.5,
            "labels": ["latency", "scheduler", "needs measurement"],
            "comments": [
                {
                    "author": "ada@example.org",
                    "text": 'Seen with 30k tokens of prompt; "stop" means 400 ms here.\nLog below.',
                },
                {
                    "author": "grace@example.org",
                    "text": "The burst was not interrupted. Naïve question: does it check? 🚀",
                },
            ],
        },
    ),
    (
        "tree",
        _TREE,
        {
            "name": "src",
            "size": 0,
            "children": [
                {"name": "engine.py", "size": 21480, "children": []},
                {"name": "models", "size": 0, "children": [{"name": "gguf.py", "size": 9321, "children": []}]},
            ],
        },
    ),
    (
        "any object",
        {"type": "object"},
        {
            "query": "SELECT name, sum(amount) FROM sales GROUP BY name ORDER BY 2 DESC LIMIT 10;",
            "rows": [["Ann", 1250.75]],
        },
    ),
]
"""Name, schema and document each."""
