"""Who is asked what: a baseline with a seed, and the answers it owes for one episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from faultset.evaluators.execution.runners.runner import Limits
from faultset.evaluators.execution.runners.work import NOTHING, Kind, Parcel
from faultset.evaluators.results.rows import Status, Truth

S_NS = 1_000_000_000
LEFT_AFTER_DELAY_S = 30
"""A delayed alarm leaves at least this much of the view to look at."""
ModelKey = tuple[str, int, int]
"""Baseline, seed, fold."""
Asked = tuple[str, float | None]
"""Protocol and, where it is "delayed", the delay in seconds."""
VERBS: dict[str, Kind] = {"detection": "detect", "localization": "localize", "rca": "diagnose"}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A baseline with a seed: what is fitted once per fold and then asked about every episode."""

    name: str
    kind: str
    task: str
    needs: tuple[str, ...]
    seed: int
    spec: Parcel
    settings: str
    trigger: str | None = None
    """Detector whose alarm this localizer was made for."""
    learns: bool = True
    """Whether it looks at training episodes when it is fitted."""

    def model(self, fold: int) -> ModelKey:
        """Key of the model that was fitted on a fold."""
        return self.name, self.seed, fold


@dataclass(frozen=True, kw_only=True)
class Model:
    """A fitted baseline as bytes, or why there is none."""

    status: Status
    parcel: Parcel = NOTHING
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Common:
    """What all units of work of an evaluation share; sent to each worker once."""

    dataset: str
    version: str
    split: str
    code: str
    libraries: str
    limits: Limits
    protocols: tuple[str, ...]
    delays: tuple[float, ...]
    subjects: tuple[Subject, ...]
    """Everybody, also detectors that are only asked for their alarm."""
    usual: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Fold -> system level and fault type that its training labels most often have."""


def asked_of(subject: Subject, truth: Truth, common: Common) -> list[Asked]:
    """List the answers that a subject owes for a scored episode.

    Without a fault nobody is to blame: localizers are then only told alarms that are false. An onset that the
    truth does not know cannot be told.
    """
    if subject.task == "detection":
        return [("detected", None)]
    asked: list[Asked] = []
    if "detected" in common.protocols:
        asked.append(("detected", None))
    if not truth.faulty:
        return asked
    if "detected" in common.protocols and subject.trigger is not None:
        asked.append(("own", None))
    if truth.onset_ns is not None:
        if "oracle" in common.protocols:
            asked.append(("oracle", None))
        if subject.task == "localization":
            asked += [("delayed", delay) for delay in delays_of(truth, common.delays)]
    return asked


def delays_of(truth: Truth, delays: Sequence[float]) -> list[float]:
    """Choose the delays of a grid that leave enough of an episode's view."""
    if truth.onset_ns is None:
        return []
    longest = (truth.view_end_ns - truth.onset_ns) / S_NS - LEFT_AFTER_DELAY_S
    return [delay for delay in delays if delay <= longest]
