"""Sixty lines for a model to rewrite with one name changed: a store of parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Part:
    """So many of one thing, on one shelf."""

    name: str
    shelf: int
    count: int = 0
    reserved: int = 0

    @property
    def free(self) -> int:
        """Not reserved."""
        return self.count - self.reserved


class Warehouse:
    """Parts by name."""

    def __init__(self, num_shelves: int) -> None:
        self.num_shelves = num_shelves
        self.parts: dict[str, Part] = {}

    def receive(self, name: str, shelf: int, count: int) -> Part:
        if not 0 <= shelf < self.num_shelves:
            raise ValueError(f"there is no shelf {shelf}")
        part = self.parts.setdefault(name, Part(name, shelf))
        if part.shelf != shelf:
            raise ValueError(f"{name} lies on shelf {part.shelf}")
        part.count += count
        return part

    def reserve(self, name: str, count: int) -> None:
        part = self.parts[name]
        if part.free < count:
            raise LookupError(f"only {part.free} of {name} are free")
        part.reserved += count

    def ship(self, name: str, count: int) -> None:
        part = self.parts[name]
        if part.reserved < count:
            raise LookupError(f"only {part.reserved} of {name} are reserved")
        part.reserved -= count
        part.count -= count

    def on_shelf(self, shelf: int) -> Iterator[Part]:
        """In the order in which they first came."""
        return (part for part in self.parts.values() if part.shelf == shelf)


def report(warehouse: Warehouse) -> str:
    lines = [f"{part.name}: {part.count} ({part.free} free)" for part in warehouse.parts.values()]
    return "\n".join(sorted(lines))
