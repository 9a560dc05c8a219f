"""Diagnosis methods other than language models: detectors, localizers and diagnosers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultset.baselines.api.contract import (
        Detection,
        Detector,
        Diagnoser,
        Diagnosis,
        Evidence,
        Labelled,
        Localizer,
        Ranking,
        Untrained,
    )
    from faultset.baselines.api.registry import (
        BaselineSpec,
        baseline,
        get_baseline,
        get_detector,
        get_diagnoser,
        get_localizer,
        list_baselines,
    )
    from faultset.baselines.api.tables import read_frame, read_table, read_wide

__all__ = [
    "BaselineSpec",
    "Detection",
    "Detector",
    "Diagnoser",
    "Diagnosis",
    "Evidence",
    "Labelled",
    "Localizer",
    "Ranking",
    "Untrained",
    "baseline",
    "get_baseline",
    "get_detector",
    "get_diagnoser",
    "get_localizer",
    "list_baselines",
    "read_frame",
    "read_table",
    "read_wide",
]

_REGISTRY = {
    "BaselineSpec",
    "baseline",
    "get_baseline",
    "get_detector",
    "get_diagnoser",
    "get_localizer",
    "list_baselines",
}


def __getattr__(name: str) -> Any:
    # Looked up on first use, so that a command's --help does not pay for numpy and pandas.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "registry" if name in _REGISTRY else "tables" if name.startswith("read_") else "contract"
    return getattr(importlib.import_module(f"faultset.baselines.api.{home}"), name)
