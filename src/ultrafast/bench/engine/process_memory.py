"""Resident memory of this process, and what it consists of."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """Bytes of physical memory that this process holds; None where the system has no ``/proc``."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: resident at three moments, of the model file, and of the KV blocks in use at the last."""

    file: int
    before_load: int  # the interpreter and its libraries
    loaded: int
    in_use: int  # with one sequence of `context` tokens in the KV cache
    kv: int
    context: int

    @property
    def rest(self) -> int:
        """What neither libraries, nor a copy of the file, nor the KV cache explain: vocabulary, activations."""
        return self.in_use - self.before_load - self.file - self.kv

    def to_dict(self) -> dict[str, int]:
        return {**asdict(self), "rest": self.rest}
