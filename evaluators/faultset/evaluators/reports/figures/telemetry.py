"""An episode's telemetry as a few line charts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from faultset.core.errors import FaultsetError
from faultset.core.times import SECOND_NS
from faultset.evaluators.results.truth import Truth

if TYPE_CHECKING:
    import pandas as pd

    from faultset.datasets.views import EpisodeView

SAMPLES_DRAWN = 400
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One line chart; paths in a box of 1000 by 100."""

    title: str
    detail: str
    paths: tuple[str, ...]
    low: str
    high: str


def panels(truth: Truth, dataset: Path | None) -> tuple[Panel, ...]:
    """Draw what clients felt and the series that moved most; nothing where the telemetry cannot be read."""
    from faultset.datasets.views import EpisodeView

    if dataset is None:
        return ()
    try:
        view = EpisodeView(dataset / "episodes" / truth.episode)
        return (*_client_panels(view, truth), *_service_panels(view, truth))
    except FaultsetError as error:
        _log.warning("episode %s cannot be drawn: %s", truth.episode, error)
        return ()


def _client_panels(view: EpisodeView, truth: Truth) -> list[Panel]:
    requests = view.requests()
    if requests.empty:
        return []
    seconds = (requests["scheduled"].astype("int64").to_numpy() - truth.view_start_ns) // SECOND_NS
    length = int((truth.view_end_ns - truth.view_start_ns) // SECOND_NS)
    inside = (seconds >= 0) & (seconds < length)
    failed = (requests["outcome"] != "ok").to_numpy()
    # What was sent just before the view's end had no time to be answered.
    scheduled_ns = requests["scheduled"].astype("int64").to_numpy()
    failed = failed & ~(
        (requests["outcome"] == "unfinished").to_numpy() & (truth.view_end_ns - scheduled_ns < 2 * SECOND_NS)
    )
    latency = requests["latency_ns"].to_numpy(dtype=float, na_value=np.nan) / 1e6
    slow, wrong = np.full(length, np.nan), np.full(length, np.nan)
    for second in np.unique(seconds[inside]):
        now = seconds == second
        wrong[second] = failed[now].mean()
        finished = latency[now & np.isfinite(latency)]
        if len(finished):
            slow[second] = np.quantile(finished, 0.95)
    return [
        _panel("clients", "95th percentile of latency, ms", slow),
        _panel("clients", "share of failed requests", wrong, low=0.0, high=max(0.05, _top(wrong))),
    ]


def _service_panels(view: EpisodeView, truth: Truth) -> list[Panel]:
    wide = view.wide(1.0)
    if wide.empty:
        return []
    z = _deviations(wide, truth)
    causes = {name for names in truth.causes for name in names} or set(truth.targets)
    own = _unlike(wide, [key for key in z.index if key[0] in causes], 2)
    other = _unlike(wide, [key for key in z.index if key[0] not in causes], 3 - len(own))
    panels = []
    for service, metric in own + other:
        label = f"{service} ({'root cause' if service in causes else 'loudest other'})" if truth.faulty else service
        values = wide[service, metric].to_numpy(dtype=float)
        panels.append(_panel(label, str(metric), values))
    return panels


def _unlike(wide: pd.DataFrame, keys: Sequence[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """Take the first series, without those that have the same shape as one before."""
    taken: list[tuple[str, str]] = []
    for key in keys:
        if len(taken) == most:
            break
        values = wide[key].ffill().bfill()
        if not any(abs(values.corr(wide[other].ffill().bfill())) > 0.97 for other in taken):
            taken.append(key)
    return taken


def _deviations(wide: pd.DataFrame, truth: Truth) -> pd.Series:
    """Largest robust |z| kept for three samples after the reference, one for each series, largest first."""
    import pandas as pd

    times = wide.index.as_unit("ns").asi8  # type: ignore[attr-defined]
    reference = wide[times < truth.reference_end_ns]
    since = truth.onset_ns if truth.onset_ns is not None else truth.reference_end_ns
    later = wide[times >= since]
    middle = reference.median()
    robust = np.maximum((reference - middle).abs().median() * 1.4826, 0.5 * reference.std())
    floor = np.maximum(middle.abs() * 0.02, 1e-9)
    z = ((later - middle).abs() / np.maximum(robust, floor)).to_numpy()
    kept = np.minimum(np.minimum(z[:-2], z[1:-1]), z[2:])
    largest = np.fmax.reduce(kept, axis=0) if len(kept) else np.full(z.shape[1], np.nan)
    return pd.Series(largest, index=wide.columns).dropna().sort_values(ascending=False, kind="stable")


def _panel(
    title: str, detail: str, values: npt.NDArray[np.float64], low: float | None = None, high: float | None = None
) -> Panel:
    known = values[np.isfinite(values)]
    bottom = low if low is not None else (float(known.min()) if len(known) else 0.0)
    top = high if high is not None else (float(known.max()) if len(known) else 1.0)
    if top <= bottom:
        top, bottom = bottom + max(abs(bottom) * 0.1, 1.0), bottom - max(abs(bottom) * 0.1, 1.0)
    return Panel(
        title=title,
        detail=detail,
        paths=_paths(values, bottom, top),
        low=_amount(bottom),
        high=_amount(top),
    )


def _paths(values: npt.NDArray[np.float64], low: float, high: float) -> tuple[str, ...]:
    """Lines between neighbouring samples; a gap in the data is a gap in the line."""
    values = _thinned(values)
    count = max(1, len(values))
    pieces: list[list[str]] = [[]]
    for i, value in enumerate(values):
        if not np.isfinite(value):
            if pieces[-1]:
                pieces.append([])
            continue
        x, y = 1000 * (i + 0.5) / count, 100 * (1 - (value - low) / (high - low))
        pieces[-1].append(f"{x:.1f},{y:.1f}")
    # a sample on its own would be invisible as a line of no length
    return tuple(" ".join(p if len(p) > 1 else [p[0], p[0]]) for p in pieces if p)


def _thinned(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Keep the least and the greatest of every stretch, in their order, so that no spike is lost."""
    if len(values) <= SAMPLES_DRAWN:
        return values
    stretches = SAMPLES_DRAWN // 2
    length = -(-len(values) // stretches)
    parts = np.full((stretches, length), np.nan)
    parts.ravel()[: len(values)] = values
    low = np.where(np.isnan(parts), np.inf, parts).argmin(axis=1)
    high = np.where(np.isnan(parts), -np.inf, parts).argmax(axis=1)
    order = np.sort(np.stack([low, high], axis=1), axis=1)
    return np.take_along_axis(parts, order, axis=1).ravel()[: 2 * -(-len(values) // length)]


def _top(values: npt.NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else 0.0


def _amount(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def position(time_ns: int, truth: Truth) -> float:
    """Where an instant lies; what is outside of the view lies at its border."""
    share = (time_ns - truth.view_start_ns) / (truth.view_end_ns - truth.view_start_ns)
    return round(100 * min(1.0, max(0.0, share)), 2)


def ticks(truth: Truth) -> tuple[tuple[float, str], ...]:
    """Five or so round seconds; counted from the onset where there is one."""
    zero = truth.onset_ns if truth.onset_ns is not None else truth.view_start_ns
    length_s = (truth.view_end_ns - truth.view_start_ns) / SECOND_NS
    step = next((s for s in (5, 10, 15, 30, 60, 120, 300, 600) if length_s / s <= 6), 1800)
    first = int(np.ceil((truth.view_start_ns - zero) / SECOND_NS / step)) * step
    marks = range(first, int((truth.view_end_ns - zero) / SECOND_NS) + 1, step)
    signed = truth.onset_ns is not None
    return tuple(
        (position(zero + mark * SECOND_NS, truth), f"{mark:+d} s" if signed and mark else f"{mark} s") for mark in marks
    )
