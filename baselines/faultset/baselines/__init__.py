"""Diagnosis methods other than language models: detectors, localizers and diagnosers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.lazy_names import lazy_names

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
        TrainingFreeBaseline,
        first_alarm,
    )
    from faultset.baselines.api.randomness import episode_rng
    from faultset.baselines.api.registry import (
        BaselineSpec,
        baseline,
        get_baseline,
        get_detector,
        get_diagnoser,
        get_localizer,
        list_baselines,
    )
    from faultset.baselines.api.tables import parse_state, read_frame, read_table, read_wide

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
