"""Ultrafast: speed as a service tier for language models.

``Engine`` loads a model and generates; everything else is reached through its own module. Names are imported on
first use, so that ``ultrafast --help`` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ultrafast.engine.engine import Engine as Engine
    from ultrafast.errors import UltrafastError as UltrafastError
    from ultrafast.types import SamplingParams as SamplingParams

__version__ = "0.1.0"
__all__ = ["Engine", "SamplingParams", "UltrafastError", "__version__"]

_HOME = {"Engine": "ultrafast.engine.engine", "SamplingParams": "ultrafast.types", "UltrafastError": "ultrafast.errors"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        import importlib

        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'ultrafast' has no attribute {name!r}")
