"""Did the target's own telemetry move, though no user noticed?

The score of a service is the largest robust |z| that one of its series keeps for three samples in a row after the
onset, against median and MAD of the healthy reference. A steady series that ends counts with the largest score; one
that has gaps anyway, such as the latency of a rarely called operation, does not. The threshold is what 1 % of
service x no-fault windows exceed; it is committed with the windows it was drawn from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from faultset.datasets.metrics.roles import is_health_metric, role_of

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
