"""The constants of the cost models: those of the hardware come with a `Device`, these are fitted, and say on what.

`fit` computes them anew; `data/fitted.json` holds what it found, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import resources

import msgspec


class Fitted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A constant that no data sheet has.

    Attributes:
        value: in the unit that the name ends with.
        fitted_on: ids of the published records, or a description of them.
        meaning: what it stands for.
    """

    value: float
    fitted_on: str
    meaning: str


@cache
def fitted() -> dict[str, Fitted]:
    """All fitted constants, by name."""
    data = (resources.files("ultrafast.wafer") / "data" / "fitted.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, Fitted])


def constant(name: str) -> float:
    """The value of one."""
    tried = _tried.get()
    return tried[name] if name in tried else fitted()[name].value


@contextmanager
def trying(values: Mapping[str, float]) -> Iterator[None]:
    """Have `constant` give these values instead, for whoever fits them."""
    token = _tried.set({**_tried.get(), **values})
    try:
        yield
    finally:
        _tried.reset(token)


_tried: ContextVar[Mapping[str, float]] = ContextVar("_tried", default={})  # noqa: B039 (never changed in place)
