"""Diagnosis methods other than language models: detectors, localizers and diagnosers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from faultset.baselines.contract import (
        Detection,
        Detector,
        Diagnoser,
        Diagnosis,
        Evidence,
        Labelled,
        Localizer,
        Ranking,
        TrainingFreeBaseline,
        episode_rng,
        first_alarm,
    )
    from faultset.baselines.features.object_states import parse_state
    from faultset.baselines.registry import (
        BaselineSpec,
        baseline,
        get_baseline,
        get_detector,
        get_diagnoser,
        get_localizer,
        list_baselines,
    )
    from faultset.datasets.views import read_frame, read_table, read_wide

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
    "TrainingFreeBaseline",
    "baseline",
    "episode_rng",
    "first_alarm",
    "get_baseline",
    "get_detector",
    "get_diagnoser",
    "get_localizer",
    "list_baselines",
    "parse_state",
    "read_frame",
    "read_table",
    "read_wide",
]

__getattr__, __dir__ = lazy_names(__name__)
