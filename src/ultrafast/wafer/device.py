"""What hardware is to a planner: figures, each with the source that it is from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ultrafast.errors import ConfigError

DeviceKind = Literal["wafer", "gpu", "lpu", "dataflow", "cpu"]
Origin = Literal["vendor", "independent", "paper", "derived", "fitted", "assumed", "measured"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and where it is from.

    Attributes:
        value: in the unit that the name of its field ends with (bytes, bytes_per_s, flop_per_s, w, usd_per_hour, …).
        origin: what kind of source that is; ``fitted`` ones come with what they were fitted on as their source.
        source: an address, or the arithmetic.
    """

    value: float
    origin: Origin
    source: str


@dataclass(frozen=True)
class Device:
    """One part that is bought or hired as a whole: a wafer, a GPU, a socket.

    Attributes:
        name: as on the command line, such as ``wse-3``.
        title: as in tables.
        figures: by name; which there are depends on the kind (see `data/devices.json`).
    """

    name: str
    title: str
    kind: DeviceKind
    figures: Mapping[str, Figure]

    def __getitem__(self, name: str) -> float:
        """The value of a figure.

        Raises:
            ConfigError: it is not known of this device; the message names both.
        """
        figure = self.figures.get(name)
        if figure is None:
            raise ConfigError(f"{self.title}: {name} is not known, and this needs it")
        return figure.value

    def get(self, name: str) -> float | None:
        """The value of a figure, or None where it is not known."""
        figure = self.figures.get(name)
        return None if figure is None else figure.value
