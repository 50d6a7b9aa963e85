"""Requests with tools at hand: most need one, some do not; and whether a call is one that the tools allow."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import msgspec

from ultrafast.bench.client.call import ToolCall
from ultrafast.errors import ConfigError

Schema = Mapping[str, Any]

_CITIES = ("Lisbon", "Oslo", "Nairobi", "Kyoto", "Lima", "Toronto", "Hanoi", "Vienna", "Porto", "Quito")
_AMOUNTS = (12, 40, 75, 130, 260, 999)
_MONEY = ("EUR", "USD", "JPY", "GBP")


def _function(name: str, description: str, properties: Schema) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = (
    _function(
        "get_weather",
        "The weather in a city now.",
        {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    ),
    _function(
        "convert_money",
        "Convert an amount of money at today's rate.",
        {
            "amount": {"type": "number"},
            "source": {"type": "string", "enum": [*_MONEY]},
            "target": {"type": "string", "enum": [*_MONEY]},
        },
    ),
    _function(
        "set_timer",
        "Set a timer.",
        {"minutes": {"type": "integer"}, "label": {"type": "string"}},
    ),
)
"""What requests may call, as Chat Completions has it."""

_PARAMETERS: Mapping[str, Schema] = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}


def tool_asks(count: int, seed: int = 0) -> list[str]:
    """So many different requests: two of three need a tool.

    Raises:
        ConfigError: there are not so many.
    """
    rng = random.Random(seed)
    needing = [
        *(f"What is the weather in {city} right now, in {unit}?" for city, unit in product(_CITIES, _UNITS)),
        *(f"How much is {n} {a} in {b} today?" for n, a, b in product(_AMOUNTS, _MONEY, _MONEY) if a != b),
        *(f"Set a timer of {n} minutes for the {what}." for n, what in product(range(3, 180), _LABELS)),
    ]
    without = [
        *(f"In one sentence: what is {city} known for?" for city in _CITIES),
        *(f"Name {n} things that one can cook with {what}." for n, what in product(range(2, 12), _FOODS)),
        *(f"Write one line of a poem about the {what}." for what in (*_LABELS, *_FOODS)),
        *(f"Which sounds nicer, the number {a} or the number {b}?" for a, b in product(range(11, 40), range(41, 61))),
    ]
    few = count // 3
    if few > len(without) or count - few > len(needing):
        most = min(3 * len(without), 3 * len(needing) // 2)
        raise ConfigError(f"{count} tool requests are wanted, and there are {most} here")
    asks = rng.sample(needing, count - few) + rng.sample(without, few)
    rng.shuffle(asks)
    return asks


_UNITS = ("celsius", "fahrenheit")
_LABELS = ("tea", "bread", "laundry", "eggs", "meeting", "soup")
_FOODS = ("rice", "lentils", "apples", "eggs", "potatoes", "beans", "cabbage", "oats")


def is_valid(call: ToolCall) -> bool:
    """Whether a call names a tool of `TOOLS`, with arguments that its schema allows."""
    parameters = _PARAMETERS.get(call.name)
    if parameters is None:
        return False
    try:
        return _fits(msgspec.json.decode(call.arguments), parameters)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


_TYPES: Mapping[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float)}


def _fits(value: Any, schema: Schema) -> bool:
    """As JSON Schema has it, for the words that `TOOLS` use."""
    if schema["type"] == "object":
        properties: Mapping[str, Schema] = schema["properties"]
        return (
            isinstance(value, dict)
            and value.keys() == properties.keys()
            and all(_fits(value[name], part) for name, part in properties.items())
        )
    if isinstance(value, float) and value.is_integer() and schema["type"] == "integer":
        value = int(value)
    is_type = isinstance(value, _TYPES[schema["type"]]) and not isinstance(value, bool)
    return is_type and value in schema.get("enum", [value])


def names_called(calls: Sequence[ToolCall]) -> tuple[str, ...]:
    """What was decided: the tools called, in order; none for an answer in words."""
    return tuple(call.name for call in calls)
