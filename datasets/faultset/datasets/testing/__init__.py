"""Checks of what importers and exporters promise, for the tests of any distribution that has one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultset.datasets.testing.exporter import check_exporter
    from faultset.datasets.testing.importer import check_importer

__all__ = ["check_exporter", "check_importer"]

_MODULES = {"check_exporter": "exporter", "check_importer": "importer"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
