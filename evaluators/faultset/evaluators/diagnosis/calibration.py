"""Hit rates of the panel on labelled incidents, by the number of methods that agree.

`benchmarks/diagnosis_calibration.py` measures them and writes `calibration.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from faultset.core.documents import check_type, parse_json
from faultset.evaluators.diagnosis.records import HitRate

CALIBRATION_FILE = "calibration.json"


@dataclass(frozen=True, kw_only=True)
class MeasuredData:
    """Results of the panel on one collection of labelled episodes."""

    data: str
    """Name of the collection."""
    incidents: int
    """Episodes with a fault."""
    named: int
    """Incidents with a suspect."""
    right: int
    """Incidents whose first suspect is a root cause."""
    right_in_three: int
    """Incidents with a root cause among the first three suspects."""
    control_right: float
    """Expected hits of the control, which may give several services the same score."""
    healthy: int = 0
    """Episodes without a fault."""
    healthy_named: int = 0
    """Episodes without a fault, but with a suspect."""


@dataclass(frozen=True, kw_only=True)
class PanelCalibration:
    """The panel that was measured, its limit and its hit rates."""

    panel: tuple[str, ...]
    control: str
    limit: float
    """Strength of evidence, in powers of ten, above which suspects are named."""
    oracle: tuple[HitRate, ...]
    """Hit rates if the time of the incident is known, by agreement."""
    detected: tuple[HitRate, ...]
    """Hit rates if detectors find the time."""
    data: Mapping[str, tuple[MeasuredData, ...]] = field(default_factory=dict)
    """Protocol -> results by collection."""

    def hit_rate(self, agreeing: int, *, oracle: bool) -> HitRate:
        """Return the hit rate for a number of agreeing methods; all counts are zero if it was never observed."""
        rates = self.oracle if oracle else self.detected
        empty = HitRate(agreeing=agreeing, incidents=0, right=0, right_in_three=0, healthy=0)
        return next((rate for rate in rates if rate.agreeing == agreeing), empty)


@cache
def read_calibration() -> PanelCalibration:
    """Return the calibration that comes with the package."""
    text = (files("faultset.evaluators.diagnosis") / CALIBRATION_FILE).read_bytes()
    return check_type(parse_json(text, CALIBRATION_FILE), PanelCalibration, CALIBRATION_FILE)
