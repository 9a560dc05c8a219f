"""Decide whether the target's telemetry changed although no client noticed the fault.

The score of a service is the largest robust |z| that one of its series holds for three samples in a row after the
onset, relative to median and MAD of the healthy reference. A steady series that ends gets the largest score; a series
with gaps, such as the latency of a rarely called operation, does not. Metrics of containers are read at irregular
times, so a single step without a value does not count as a gap. The threshold, which 1 % of the windows without a
fault exceed, is stored with these windows.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ConfigDict

from faultset.collector.load.patterns import CONSTANT
from faultset.collector.plans.plan import find_plan, random_draws
from faultset.core.documents import STRICT, check_type, parse_object
from faultset.datasets.dataset import Dataset
from faultset.datasets.format.labels import read_evidence, read_journal
from faultset.datasets.metrics.roles import is_health_metric, role_of

ROLLOUT = "rollout"
"""Check of evidence rows on services whose pods a harmless change replaced."""


def rolled_out_services(evidence: pd.DataFrame) -> dict[str, int]:
    """Return when (ns) a harmless change last replaced the pods of each service, which changes its telemetry."""
    rows = evidence[evidence["check"] == ROLLOUT]
    times_ns = pd.to_datetime(rows["time"], utc=True).astype("int64")
    return {
        str(service): int(time_ns) for service, time_ns in times_ns.groupby(rows["subject"].astype(str)).max().items()
    }


RUN = 3
CAP = 1000.0
_MIN_STEADY_SHARE = 0.98


@dataclass(frozen=True, kw_only=True)
class LatentScore:
    """How much a service's telemetry changed, and the series that changed most."""

    service: str
    score: float
    series: str


def service_scores(wide: pd.DataFrame, *, reference_end_ns: int, onset_ns: int) -> list[LatentScore]:
    """Score every service of a wide frame: a regular grid over the view, with columns (service, metric)."""
    wide = wide.loc[:, [_is_considered(str(metric)) for _, metric in wide.columns]]
    index = wide.index.astype("int64").to_numpy()
    values = wide.to_numpy(dtype="float64")
    reference, after = values[index < reference_end_ns], values[index >= onset_ns]
    if len(reference) == 0 or len(after) < RUN:
        return []
    has_values = np.isfinite(reference).mean(axis=0) >= 0.5
    median, mad, spread = np.full((3, reference.shape[1]), np.nan)
    considered_values = reference[:, has_values]
    with np.errstate(all="ignore"):
        median[has_values] = np.nanmedian(considered_values, axis=0)
        mad[has_values] = np.nanmedian(np.abs(considered_values - median[has_values]), axis=0)
        spread[has_values] = np.nanstd(considered_values, axis=0)
    # metrics of containers are read at irregular times, but independently of requests
    is_read = np.array([str(metric).startswith("container_") for _, metric in wide.columns], dtype=bool)
    scale = np.maximum.reduce([1.4826 * mad, 0.5 * spread, 0.02 * np.abs(median), np.full_like(mad, 1e-6)])
    z = np.abs(after - median) / scale
    has_vanished = np.isnan(after) & _is_steady(reference)
    z = np.minimum(np.where(has_vanished, CAP, np.where(np.isnan(z), 0.0, z)), CAP)
    lasting = np.minimum.reduce([z[i : len(z) - RUN + 1 + i] for i in range(RUN)])
    has_ended = is_read & ~_has_gap(reference, 2) & _has_gap(after, RUN)
    best = np.where(has_ended, CAP, np.where(has_values, lasting.max(axis=0), 0.0))
    scores: dict[str, LatentScore] = {}
    for (service, metric), score in zip(wide.columns, best, strict=True):
        largest = scores.get(service)
        if largest is None or score > largest.score:
            scores[service] = LatentScore(service=str(service), score=float(score), series=str(metric))
    return list(scores.values())


def _is_steady(reference: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return which columns have a value in almost every step."""
    return np.asarray(np.isfinite(reference).mean(axis=0) >= _MIN_STEADY_SHARE, dtype=np.bool_)


def _has_gap(values: npt.NDArray[np.float64], steps: int) -> npt.NDArray[np.bool_]:
    """Return which columns have no value in `steps` consecutive steps."""
    missing = np.isnan(values)
    runs = [missing[i : len(missing) - steps + 1 + i] for i in range(steps)]
    return np.asarray(np.logical_and.reduce(runs).any(axis=0), dtype=np.bool_)


def _is_considered(metric: str) -> bool:
    """Return whether a metric may indicate health; metrics that count changes of an object, for example, do not."""
    return is_health_metric(metric, role_of(metric))


VERSION = 2
QUANTILE = 0.99
MIN_WINDOWS = 300
MIN_FOR_QUANTILE = 99
"""Minimum number of windows at which a new window exceeds all of them with a probability of at most 1 %."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Score of one service in one episode without a fault."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    episode: str
    service: str
    series: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Windows without a fault of one application, platform, step and load."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    app: str
    platform: str
    step_s: float
    """Seconds between samples."""
    windows: tuple[Window, ...]
    load: str = CONSTANT
    """Name of the clients' traffic; varying load changes telemetry without a fault."""

    @property
    def setting(self) -> tuple[str, str, float, str]:
        """Application, platform, step and load, to which the limit applies."""
        return self.app, self.platform, self.step_s, self.load

    @property
    def episodes(self) -> int:
        return len({window.episode for window in self.windows})

    @property
    def threshold(self) -> float | None:
        """Score above which a service's telemetry counts as changed; None with too few windows."""
        return compute_limit([window.score for window in self.windows])

    @property
    def false_alarms(self) -> tuple[int, int]:
        """Number of windows above the limit of all other episodes, and number of windows tested."""
        by_episode: dict[str, list[float]] = defaultdict(list)
        for window in self.windows:
            by_episode[window.episode].append(window.score)
        return cross_validate_limit(by_episode)


def cross_validate_limit(scores: Mapping[str, Sequence[float]], *, minimum: int = MIN_WINDOWS) -> tuple[int, int]:
    """Return the number of scores above the limit of all other episodes or recordings, and the number tested."""
    exceeding_count = tested_count = 0
    for name, values in scores.items():
        limit = compute_limit([score for other in scores if other != name for score in scores[other]], minimum=minimum)
        if limit is not None:
            exceeding_count += sum(score > limit for score in values)
            tested_count += len(values)
    return exceeding_count, tested_count


def compute_limit(scores: Sequence[float], *, minimum: int = MIN_WINDOWS) -> float | None:
    """Return the score that a new window exceeds with a probability of at most 1 %; None for fewer than `minimum`."""
    if len(scores) < minimum:
        return None
    return sorted(scores)[math.ceil((len(scores) + 1) * QUANTILE) - 1]


def measure_calibrations(datasets: Iterable[Dataset]) -> list[Calibration]:
    """Score the services of all plain episodes at the onset that their plans drew.

    Disturbed and sham episodes are not used, because the telemetry of their services changes. Episodes in which the
    SLI test fired are not used, because their host was too busy, and neither are services that got a new build. An
    episode in two datasets counts once.
    """
    windows_by_setting: dict[tuple[str, str, float, str], dict[str, list[Window]]] = defaultdict(dict)
    for dataset in datasets:
        for episode in dataset.episodes:
            evidence = read_evidence(dataset.path(episode))
            is_noticed = evidence.loc[evidence["check"] == "sli", "passed"].any()
            if dataset.label(episode).no_fault_kind != "plain" or is_noticed:
                continue
            plan = find_plan(read_journal(dataset.path(episode)))
            if plan is None:
                # imported episodes have no plan and therefore no drawn onset
                continue
            view = dataset.view(episode)
            rolled_out = rolled_out_services(evidence)
            onset_ns = view.window[0] + int(random_draws(plan).onset_s * 1e9)
            scores = service_scores(view.wide(plan.step_s), reference_end_ns=view.reference[1], onset_ns=onset_ns)
            windows_by_setting[plan.app, plan.platform, plan.step_s, plan.traffic.name][episode] = [
                Window(episode=episode, service=score.service, series=score.series, score=round(score.score, 2))
                for score in scores
                if score.service not in rolled_out
            ]
    return [
        Calibration(
            app=app,
            platform=platform,
            step_s=step_s,
            load=load,
            windows=tuple(
                sorted(
                    (window for windows in episodes.values() for window in windows), key=lambda window: -window.score
                )
            ),
        )
        for (app, platform, step_s, load), episodes in sorted(windows_by_setting.items())
    ]


def to_json(calibrations: Iterable[Calibration]) -> str:
    content = {"version": VERSION, "calibrations": [asdict(calibration) for calibration in calibrations]}
    return json.dumps(content, indent=1) + "\n"


def from_json(text: str, origin: str) -> list[Calibration]:
    """Read the text of a calibration file; `origin` names it in errors."""
    return list(check_type(parse_object(text, origin), _File, origin).calibrations)


@dataclass(frozen=True, kw_only=True)
class _File:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    version: int
    calibrations: tuple[Calibration, ...]


@cache
def load_calibrations() -> tuple[Calibration, ...]:
    """Return the calibrations of this release with their windows."""
    text = files("faultset.collector.verdicts").joinpath("calibration.json").read_text()
    return tuple(from_json(text, "calibration.json"))


def threshold_for(app: str, platform: str, step_s: float, load: str = CONSTANT) -> float | None:
    """Return the limit of the latent test; None if it is not calibrated."""
    return find_threshold(load_calibrations(), app, platform, step_s, load)


def find_threshold(
    calibrations: Iterable[Calibration], app: str, platform: str, step_s: float, load: str
) -> float | None:
    """Return the limit from given calibrations; None if none of them applies or it has too few windows."""
    setting = (app, platform, step_s, load)
    return next((calibration.threshold for calibration in calibrations if calibration.setting == setting), None)
