"""Reading and writing datasets of labelled telemetry."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultset.datasets.contexts import EpisodeContext
    from faultset.datasets.episodes import EpisodeWriter
    from faultset.datasets.errors import DataError, FaultsetError, PlatformError, UsageError
    from faultset.datasets.versions import Dataset, create_version, open_dataset
    from faultset.datasets.views import EpisodeView

__all__ = [
    "DataError",
    "Dataset",
    "EpisodeContext",
    "EpisodeView",
    "EpisodeWriter",
    "FaultsetError",
    "PlatformError",
    "UsageError",
    "create_version",
    "open_dataset",
]

_HOMES = {
    "DataError": "errors",
    "Dataset": "versions",
    "EpisodeContext": "contexts",
    "EpisodeView": "views",
    "EpisodeWriter": "episodes",
    "FaultsetError": "errors",
    "PlatformError": "errors",
    "UsageError": "errors",
    "create_version": "versions",
    "open_dataset": "versions",
}


def __getattr__(name: str) -> Any:
    # Looked up on first use, so that a command's --help does not pay for pyarrow and pandas.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
