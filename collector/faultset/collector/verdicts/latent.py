"""Did the target's own telemetry move, though no user noticed?

The score of a service is the largest robust |z| that one of its series keeps for three samples in a row after the
onset, against median and MAD of the healthy reference. A steady series that ends counts with the largest score; one
that has gaps anyway, such as the latency of a rarely called operation, does not. The threshold is what 1 % of
service x no-fault windows exceed; it is committed with the windows it was drawn from.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import ConfigDict
from scipy import stats

from faultset.collector.load.workloads.patterns import CONSTANT
from faultset.collector.plans.plan import Plan, random_draws
from faultset.core.reading.documents import STRICT, checked, parse_object
from faultset.datasets.dataset import Dataset
from faultset.datasets.format.labels import read_evidence, read_journal
from faultset.datasets.metrics.roles import is_health_metric, role_of

ROLLOUT = "rollout"
"""Check of the rows of evidence whose subject had a healthy build rolled out."""


def rolled_out_services(evidence: pd.DataFrame) -> frozenset[str]:
    """Return the services whose telemetry has moved because a healthy build was rolled out."""
    return frozenset(evidence.loc[evidence["check"] == ROLLOUT, "subject"].astype(str))


RUN = 3
CAP = 1000.0
_STEADY = 0.98


@dataclass(frozen=True, kw_only=True)
class LatentScore:
    """How far a service's telemetry moved, and which of its series did most."""

    service: str
    score: float
    series: str


def service_scores(wide: pd.DataFrame, *, reference_end_ns: int, onset_ns: int) -> list[LatentScore]:
    """Score every service of a wide frame.

    Parameters
    ----------
    wide
        Regular grid over the view, columns (service, metric), as `EpisodeView.wide` gives it.
    """
    wide = wide.loc[:, [_is_considered(str(metric)) for _, metric in wide.columns]]
    index = wide.index.astype("int64").to_numpy()
    values = wide.to_numpy(dtype="float64")
    reference, after = values[index < reference_end_ns], values[index >= onset_ns]
    if len(reference) == 0 or len(after) < RUN:
        return []
    present = np.isfinite(reference).mean(axis=0) >= 0.5
    with np.errstate(all="ignore"):
        median = np.array([np.nanmedian(c) if p else np.nan for c, p in zip(reference.T, present, strict=True)])
        mad = np.array(
            [np.nanmedian(np.abs(c - m)) if p else np.nan for c, m, p in zip(reference.T, median, present, strict=True)]
        )
        spread = np.array([np.nanstd(c) if p else np.nan for c, p in zip(reference.T, present, strict=True)])
    scale = np.maximum.reduce([1.4826 * mad, 0.5 * spread, 0.02 * np.abs(median), np.full_like(mad, 1e-6)])
    z = np.abs(after - median) / scale
    gone = np.isnan(after) & (np.isfinite(reference).mean(axis=0) >= _STEADY)
    z = np.minimum(np.where(gone, CAP, np.where(np.isnan(z), 0.0, z)), CAP)
    kept = np.minimum.reduce([z[i : len(z) - RUN + 1 + i] for i in range(RUN)])
    best = np.where(present, kept.max(axis=0), 0.0)
    scores: dict[str, LatentScore] = {}
    for (service, metric), score in zip(wide.columns, best, strict=True):
        known = scores.get(service)
        if known is None or score > known.score:
            scores[service] = LatentScore(service=str(service), score=float(score), series=str(metric))
    return list(scores.values())


def _is_considered(metric: str) -> bool:
    """Leave out what moves by any change of an object, harmful or not."""
    return is_health_metric(metric, role_of(metric))


VERSION = 2
QUANTILE = 0.99
LEAST_WINDOWS = 300


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
    """What was measured for one application on one platform at one step."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    app: str
    platform: str
    step_s: float
    """Seconds between samples."""
    windows: tuple[Window, ...]
    load: str = CONSTANT
    """Traffic of the clients, by its name: telemetry of varying load moves without a fault."""

    @property
    def episodes(self) -> int:
        """Number of episodes without a fault."""
        return len({window.episode for window in self.windows})

    @property
    def threshold(self) -> float | None:
        """Score above which a service's telemetry counts as moved; None where too little was measured."""
        return limit_of([window.score for window in self.windows])

    @property
    def unseen(self) -> tuple[int, int]:
        """How many windows exceed the limit that the other episodes give, and how many could be judged so."""
        by_episode: dict[str, list[float]] = defaultdict(list)
        for window in self.windows:
            by_episode[window.episode].append(window.score)
        exceeding = judged = 0
        for episode, scores in by_episode.items():
            limit = limit_of([s for other, part in by_episode.items() if other != episode for s in part])
            if limit is not None:
                exceeding += sum(score > limit for score in scores)
                judged += len(scores)
        return exceeding, judged


def limit_of(scores: Sequence[float]) -> float | None:
    """Return the score that one more window exceeds with a chance of 1 % at most; None for too few scores."""
    if len(scores) < LEAST_WINDOWS:
        return None
    return sorted(scores)[math.ceil((len(scores) + 1) * QUANTILE) - 1]


def binomial_interval(exceeding: int, windows: int) -> tuple[float, float]:
    """Return the exact 95 % interval (Clopper and Pearson) of a share."""
    found = stats.binomtest(exceeding, windows).proportion_ci(0.95)
    return float(found.low), float(found.high)


def measured(datasets: Iterable[Dataset]) -> list[Calibration]:
    """Score every service of every plain episode, at the instant that its plan drew as onset.

    Only plain episodes count, in the disturbed and sham ones services are meant to move; and of those only the ones in
    which the SLI test stayed silent, because otherwise the host was too busy for the episode to be called healthy, and
    only the services that were not rolled out. An episode that is in two datasets counts once.
    """
    found: dict[tuple[str, str, float, str], dict[str, list[Window]]] = defaultdict(dict)
    for dataset in datasets:
        for episode in dataset.episodes:
            evidence = read_evidence(dataset.path(episode))
            noticed = evidence.loc[evidence["check"] == "sli", "passed"].any()
            if dataset.label(episode).no_fault_kind != "plain" or noticed:
                continue
            notes = read_journal(dataset.path(episode))
            args = next((record["args"] for record in notes if record.get("verb") == "plan"), None)
            if args is None:
                # an imported episode has no plan, and so no instant at which it could have had a fault
                continue
            plan = Plan.from_json(args)
            view = dataset.view(episode)
            rolled_out = rolled_out_services(evidence)
            onset_ns = view.window[0] + int(random_draws(plan).onset_s * 1e9)
            scores = service_scores(view.wide(plan.step_s), reference_end_ns=view.reference[1], onset_ns=onset_ns)
            found[plan.app, plan.platform, plan.step_s, plan.traffic.name][episode] = [
                Window(episode=episode, service=one.service, series=one.series, score=round(one.score, 2))
                for one in scores
                if one.service not in rolled_out
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
        for (app, platform, step_s, load), episodes in sorted(found.items())
    ]


def to_json(calibrations: Iterable[Calibration]) -> str:
    """Return the text of a calibration file."""
    content = {"version": VERSION, "calibrations": [asdict(one) for one in calibrations]}
    return json.dumps(content, indent=1) + "\n"


def from_json(text: str, origin: str) -> list[Calibration]:
    """Read the text of a calibration file; `origin` names it in errors."""
    content: dict[str, Any] = checked(parse_object(text, origin), _File, origin).__dict__
    return list(content["calibrations"])


@dataclass(frozen=True, kw_only=True)
class _File:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    version: int
    calibrations: tuple[Calibration, ...]


@cache
def shipped() -> tuple[Calibration, ...]:
    """Return the calibrations that come with this release, with the windows that they were drawn from."""
    text = files("faultset.collector.verdicts").joinpath("calibration.json").read_text()
    return tuple(from_json(text, "calibration.json"))


def threshold_for(app: str, platform: str, step_s: float, load: str = CONSTANT) -> float | None:
    """Return the limit of the latent test; None where it was not calibrated."""
    return threshold_of(shipped(), app, platform, step_s, load)


def threshold_of(
    calibrations: Iterable[Calibration], app: str, platform: str, step_s: float, load: str
) -> float | None:
    """Return the limit that some calibrations give; None where none of them is of that kind, or it has too few."""
    wanted = (app, platform, step_s, load)
    found = (one.threshold for one in calibrations if (one.app, one.platform, one.step_s, one.load) == wanted)
    return next(found, None)
