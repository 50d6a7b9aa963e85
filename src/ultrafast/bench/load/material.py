"""Text to ask about, by category: sentences, functions, exercises and records, made from templates of our own.

Random words or tokens would be cheap to make, but drafts of speculative decoding match them unlike any real text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Literal, get_args

Category = Literal["prose", "code", "math", "json"]
CATEGORIES: tuple[Category, ...] = get_args(Category)

_PLACES = (
    *("the harbour", "the old mill", "the northern pass", "the market square", "the library", "the observatory"),
    *("the salt works", "the railway depot", "the botanical garden", "the lower town", "the ferry landing"),
    *("the quarry", "the weather station", "the cathedral yard", "the canal lock", "the printing house"),
)
_PEOPLE = (
    *("the surveyor", "the night nurse", "a retired captain", "the archivist", "two apprentices", "the bridge keeper"),
    *("a visiting botanist", "the schoolteacher", "the town clerk", "a young mechanic", "the baker's daughter"),
    *("the lighthouse crew", "an insurance agent", "the choir master", "a geologist", "the district engineer"),
)
_ACTS = (
    *("measured the depth of the water", "copied the inscription by hand", "repaired the broken pump"),
    *("counted the crates twice", "wrote a letter to the council", "compared the maps with the ground"),
    *("waited for the second train", "sorted the samples by colour", "asked for the records of the previous winter"),
    *("noticed a crack above the door", "drew the outline of the coast", "refused to sign the report"),
)
_BECAUSE = (
    *("because nobody had looked there for years", "although the wind had turned before noon"),
    *("while the others were still arguing about the cost", "so that the work could begin again in spring"),
    *("before the road was closed by snow", "as if the answer had been known all along"),
    *("after the lamps had been put out", "until the last of the visitors had gone home"),
)
_THINGS = (
    *("order", "invoice", "sensor", "account", "shipment", "ticket", "session", "contract", "document", "payment"),
    *("device", "booking", "profile", "report", "message", "product"),
)
_FIELDS = (
    *("amount", "status", "created", "owner", "priority", "weight", "region", "score", "version", "duration"),
    *("quantity", "label", "height", "offset", "rating", "balance"),
)
_CITIES = ("Lisbon", "Tampere", "Osaka", "Valparaíso", "Gdańsk", "Nairobi", "Quebec", "Leipzig", "Hanoi", "Porto")
_CALLS = (
    *("get_weather", "find_flights", "create_ticket", "search_documents", "convert_currency"),
    *("read_sensor", "book_table", "track_shipment"),
)


def _prose(random: Random) -> str:
    day, year = random.randint(1, 28), random.randint(1870, 1969)
    place, people, act, because = map(random.choice, (_PLACES, _PEOPLE, _ACTS, _BECAUSE))
    return random.choice(
        (
            f"On the {day}. of that month in {year}, {people} {act} near {place} {because}.",
            f"At {place}, {people} {act}, {because}, and {random.choice(_PEOPLE)} came too late to help.",
            f"It was said later that {people} {act} {because}; the register of {place} for {year} says nothing of it.",
            f"{people.capitalize()} had come from {place} and {act} {because}.",
        )
    )


def _code(random: Random) -> str:
    thing, (field, other) = random.choice(_THINGS), random.sample(_FIELDS, 2)
    limit = random.randint(2, 900)
    return random.choice(
        (
            f"def total_{field}({thing}s, limit={limit}):\n    total = 0\n    for {thing} in {thing}s:\n"
            f"        if {thing}.{other} < limit:\n            total += {thing}.{field}\n    return total\n\n",
            f"class {thing.capitalize()}Store:\n    def __init__(self):\n        self.items = {{}}\n\n"
            f"    def add(self, key, {field}, {other}={limit}):\n        if key in self.items:\n"
            f'            raise KeyError(f"{thing} {{key}} is there already")\n'
            f"        self.items[key] = ({field}, {other})\n\n",
            f"def sort_by_{field}({thing}s):\n    known = [{thing} for {thing} in {thing}s if {thing}.{field}]\n"
            f"    return sorted(known, key=lambda {thing}: ({thing}.{field}, -{thing}.{other}))[:{limit}]\n\n",
        )
    )


def _math(random: Random) -> str:
    a, b, rest = random.randint(4, 99), random.randint(2, 99), random.randint(1, 999)
    c = a * b + rest
    thing = random.choice(_THINGS)
    return random.choice(
        (
            f"Let f(x) = {a}x^2 - {b}x + {c}. Then f'(x) = {2 * a}x - {b}, which is zero at x = {b}/{2 * a}.\n",
            f"A warehouse has {c} {thing}s and sends out {a} of them a day; after {b} days there are "
            f"{c} - {a} * {b} = {rest} left.\n",
            f"The sum of the first {c} odd numbers is {c}^2 = {c * c}, and {a} * {b} = {a * b}.\n",
            f"If 3 of {a} {thing}s fail, the share is 3/{a}; for {b} independent lots the chance that none fails is "
            f"(1 - 3/{a})^{b}.\n",
        )
    )


def _json(random: Random) -> str:
    number, city = random.randint(1000, 99999), random.choice(_CITIES)
    thing, (field, other) = random.choice(_THINGS), random.sample(_FIELDS, 2)
    return random.choice(
        (
            f'{{"type": "{thing}", "id": {number}, "{field}": {random.random():.3f}, "city": "{city}", '
            f'"{other}": {random.choice(("true", "false", "null"))}}}\n',
            f'{{"name": "{random.choice(_CALLS)}", "arguments": {{"place": "{city}", "{field}": {number}, '
            f'"units": "{random.choice(("metric", "imperial"))}"}}}}\n',
            f'{{"name": "{random.choice(_CALLS)}", "arguments": {{"{thing}_id": "{thing[:3]}-{number}", '
            f'"fields": ["{field}", "{other}"]}}}}\n',
        )
    )


PIECES: Mapping[Category, Callable[[Random], str]] = {"prose": _prose, "code": _code, "math": _math, "json": _json}
"""One piece of text by category; a text is as many of them as it takes."""

SEPARATOR: Mapping[Category, str] = {"prose": " ", "code": "", "math": "", "json": ""}

TASK: Mapping[Category, str] = {
    "prose": "Go on with this chronicle in the same style, at length and in full sentences.",
    "code": "Go on with this Python module: write more functions and classes of the same kind.",
    "math": "Go on with further exercises of this kind, and work through each of them step by step.",
    "json": "Go on with further records in the same format, one a line, and nothing else.",
}
"""What is asked at the end, so that there is something to write for as long as it may."""
