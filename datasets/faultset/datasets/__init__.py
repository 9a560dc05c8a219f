"""Reading and writing datasets of labelled telemetry."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultset.core.errors import DataError, FaultsetError, PlatformError, UsageError
    from faultset.datasets.dataset import Dataset, open_dataset
    from faultset.datasets.format.context import EpisodeContext
    from faultset.datasets.format.episodes import EpisodeWriter
    from faultset.datasets.format.labels import Label, RootCause
    from faultset.datasets.format.versions import create_version
    from faultset.datasets.views import EpisodeView

__all__ = [
    "DataError",
    "Dataset",
    "EpisodeContext",
    "EpisodeView",
    "EpisodeWriter",
    "FaultsetError",
    "Label",
    "PlatformError",
    "RootCause",
    "UsageError",
    "create_version",
    "open_dataset",
]

_HOMES = {
    "DataError": "faultset.core.errors",
    "Dataset": "faultset.datasets.dataset",
    "EpisodeContext": "faultset.datasets.format.context",
    "EpisodeView": "faultset.datasets.views",
    "Label": "faultset.datasets.format.labels",
    "RootCause": "faultset.datasets.format.labels",
    "EpisodeWriter": "faultset.datasets.format.episodes",
    "FaultsetError": "faultset.core.errors",
    "PlatformError": "faultset.core.errors",
    "UsageError": "faultset.core.errors",
    "create_version": "faultset.datasets.format.versions",
    "open_dataset": "faultset.datasets.dataset",
}


def __getattr__(name: str) -> Any:
    # Looked up on first use, so that a command's --help does not pay for pyarrow and pandas.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
