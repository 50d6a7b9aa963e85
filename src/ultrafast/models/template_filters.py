"""The filters chat templates may use: Jinja's, where they cannot blow up; versions with bounds for the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import Environment, pass_environment
from jinja2.filters import FILTERS, make_attrgetter
from markupsafe import escape

from ultrafast.models import bounds
from ultrafast.models.bounds import OutOfBoundsError, budget
from ultrafast.models.sandbox import counted_function

_MAX_INDENT = 16


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Hugging Face writes it: characters as they are, nothing escaped for HTML."""
    pay = budget.get()
    weight, depth = pay.weigh(value, 0)
    width = indent if isinstance(indent, int) else len(indent or "")
    if max(width, *map(len, separators or ("",))) > _MAX_INDENT:
        raise OutOfBoundsError(f"wants JSON with an indent or separator of more than {_MAX_INDENT} characters")
    pay.room(weight + weight // 64 * max(width, 0) * depth)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@pass_environment
def _join(environment: Environment, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    pay = budget.get()
    parts = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    return bounds.join(pay, pay.text(d), parts)


def _replace(s: Any, old: Any, new: Any, count: int | None = None) -> str:
    pay = budget.get()
    return bounds.replace(pay, pay.text(s), pay.text(old), pay.text(new), -1 if count is None else count)


def _indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> Any:
    pay = budget.get()
    text = pay.text(s)
    pay.room(len(text) + (len(text.splitlines()) + 1) * (width if isinstance(width, int) else len(width)))
    return FILTERS["indent"](text, width, first, blank)


def _center(value: Any, width: int = 80) -> str:
    pay = budget.get()
    pay.room(width)
    return pay.text(value).center(width)


def _format(value: Any, *args: Any, **kwargs: Any) -> Any:
    bounds.check_format(budget.get(), value, kwargs or args)
    return FILTERS["format"](value, *args, **kwargs)


def _trim(value: Any, chars: str | None = None) -> str:
    pay = budget.get()
    text = pay.text(value)
    pay.search(text, chars)
    return text.strip(chars)


def _sum(iterable: Iterable[Any]) -> Any:
    """Numbers only: adding lists copies them again and again."""
    items = budget.get().items(iterable)
    if not all(isinstance(item, (int, float)) for item in items):
        raise TypeError("the sum filter adds numbers only")
    return sum(items)


def _round(value: Any, precision: int = 0, method: str = "common") -> Any:
    if abs(precision) > 20:
        raise OutOfBoundsError("rounds to more than 20 digits")
    return FILTERS["round"](value, precision, method)


def _cut(name: str) -> Callable[..., Any]:
    def cut(value: Iterable[Any], size: int, fill_with: Any = None) -> Any:
        """Jinja's batch or slice, which pad up to ``size`` items."""
        pay = budget.get()
        pay.room(8 * size)
        return FILTERS[name](pay.items(value), size, fill_with)

    return cut


def _listed(name: str) -> Callable[..., Any]:
    """A filter that makes a list of what it is given, by itself unbounded for a long string."""

    def call(*args: Any, **kwargs: Any) -> Any:
        for text in args:
            if isinstance(text, str):
                budget.get().room(8 * len(text))
        return FILTERS[name](*args, **kwargs)

    call.__dict__.update(getattr(FILTERS[name], "__dict__", {}))
    return call


_PLAIN = """abs attr capitalize count d default dictsort first float int items last length lower map max min reject
    rejectattr reverse select selectattr title upper urlencode wordcount"""
_OWN: dict[str, Callable[..., Any]] = {
    "batch": _cut("batch"),
    "center": _center,
    "e": lambda value: str(escape(budget.get().text(value))),
    "escape": lambda value: str(escape(budget.get().text(value))),
    "format": _format,
    "indent": _indent,
    "join": _join,
    "replace": _replace,
    "round": _round,
    "safe": lambda value: value,  # there is no HTML escaping to be safe from
    "slice": _cut("slice"),
    "string": lambda value: budget.get().text(value),
    "sum": _sum,
    "tojson": _tojson,
    "trim": _trim,
}
TEMPLATE_FILTERS = {
    name: counted_function(function)
    for name, function in (
        {name: FILTERS[name] for name in _PLAIN.split()}
        | {name: _listed(name) for name in ("groupby", "list", "sort", "unique")}
        | _OWN
    ).items()
}
