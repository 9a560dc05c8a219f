"""Recordings from labelled series: one service, its metrics on a time axis, and windows with an anomaly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS, utc_text
from faultset.datasets.format.incidents import ANOMALY
from faultset.datasets.imports.columns import Ints, long_metrics
from faultset.datasets.imports.contract import ForeignChunk, ForeignRecording, build_cause
from faultset.datasets.imports.recordings import split_window
from faultset.datasets.imports.series.sample_files import Numbers

CHUNK_SAMPLES = 250_000
_LONGEST_CHUNK_NS = 30 * 86_400 * SECOND_NS
_MAX_CHUNKS = 5_000
_LATEST_NS = 1 << 62
START_NS = 1_577_836_800 * SECOND_NS
"""Time of the first sample of a series without times: 2020-01-01, UTC."""


class AnomalyWindow(NamedTuple):
    """A labelled anomaly, half-open, UTC nanoseconds."""

    start_ns: int
    end_ns: int
    parameters: Mapping[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class LabelledSeries:
    """The metrics of one service with labelled anomalies."""

    app: str
    """Name of the group of series."""
    service: str
    """Name of the series."""
    times_ns: Ints
    """[T] times of the samples, increasing."""
    metrics: Mapping[str, Numbers]
    """Metric -> [T] samples; NaN where one is missing."""
    step_ns: int
    """Time that a sample covers."""
    anomalies: Sequence[AnomalyWindow]
    """Labelled anomalies in time order."""
    training_rows: int = 0
    """Number of samples at the start that the source intends for training; 0 if there are none."""
    inputs: tuple[Path, ...] = field(default=())
    """Files of the series."""

    def __post_init__(self) -> None:
        if not 0 < int(self.times_ns[0]) < int(self.times_ns[-1]) < _LATEST_NS or self.step_ns < 1_000_000:
            raise DataError(
                f"{self.service} must cover a time after 1970 in steps of at least 1 ms, but lasts from "
                f"{self.times_ns[0]} to {self.times_ns[-1]} ns; correct its times"
            )

    @property
    def end_ns(self) -> int:
        """End of the last sample."""
        return int(self.times_ns[-1]) + self.step_ns

    def to_recording(self) -> ForeignRecording:
        """Return the series as a recording; raise DataError if an anomaly is outside it."""
        return ForeignRecording(
            app=self.app,
            services=(self.service,),
            chunks=partial(_chunks, self),
            incidents=tuple(map(self._incident, self.anomalies)),
            training_end_ns=self._training_end(),
            source_intervals_s={"metrics": self.step_ns / SECOND_NS},
            inputs=self.inputs,
        )

    def _incident(self, window: AnomalyWindow) -> dict[str, Any]:
        if not self.times_ns[0] <= window.start_ns < window.end_ns <= self.end_ns:
            raise DataError(
                f"anomalies of {self.service} must be between {utc_text(int(self.times_ns[0]))} and "
                f"{utc_text(self.end_ns)}, the time of its samples, but one lasts from {utc_text(window.start_ns)} to "
                f"{utc_text(window.end_ns)}; correct its labels"
            )
        return {
            "fault": ANOMALY,
            "targets": [self.service],
            "root_causes": [build_cause(self.service)],
            "parameters": dict(window.parameters),
            "inject_start": window.start_ns,
            "recover_start": window.end_ns,
        }

    def _training_end(self) -> int | None:
        """Return the end of the training part, or the start of an anomaly that spans this end; None without a part."""
        if not self.training_rows:
            return None
        if self.training_rows >= len(self.times_ns):
            raise DataError(
                f"the training part of {self.service} must be shorter than its {len(self.times_ns)} samples, but has "
                f"{self.training_rows}; correct it"
            )
        end_ns = int(self.times_ns[self.training_rows])
        for window in reversed(self.anomalies):
            if window.start_ns < end_ns < window.end_ns:
                end_ns = window.start_ns
        return end_ns if end_ns > self.times_ns[0] else None


def _chunks(series: LabelledSeries) -> Iterator[ForeignChunk]:
    start_ns, end_ns = int(series.times_ns[0]), series.end_ns
    rows = max(1, CHUNK_SAMPLES // len(series.metrics))
    length_ns = min(max(series.step_ns * rows, (end_ns - start_ns) // _MAX_CHUNKS), _LONGEST_CHUNK_NS)
    for first_ns, last_ns in split_window(start_ns, end_ns, length_ns):
        first, last = np.searchsorted(series.times_ns, [first_ns, last_ns])
        columns = [(series.service, metric, values[first:last]) for metric, values in series.metrics.items()]
        table = partial(long_metrics, series.times_ns[first:last], columns)
        yield ForeignChunk(start_ns=first_ns, end_ns=last_ns, tables={"metrics": lambda table=table: [table()]})


def find_anomalies(labels: npt.NDArray[np.bool_], times_ns: Ints, step_ns: int) -> list[AnomalyWindow]:
    """Return a window for each run of labelled samples.

    Parameters
    ----------
    labels
        [T] whether each sample is an anomaly.
    times_ns
        [T] times of the samples.
    step_ns
        Time that a sample covers; a window ends earlier if the next sample follows sooner.

    Examples
    --------
    >>> [window[:2] for window in find_anomalies(np.array([0, 1, 1, 0, 1], bool), np.arange(5) * 10, 10)]
    [(10, 30), (40, 50)]
    """
    edges = np.flatnonzero(np.diff(labels.astype(np.int8), prepend=0, append=0))
    windows = []
    for first, after in edges.reshape(-1, 2).tolist():
        end_ns = int(times_ns[after - 1]) + step_ns
        if after < len(times_ns):
            end_ns = min(end_ns, int(times_ns[after]))
        windows.append(AnomalyWindow(int(times_ns[first]), end_ns))
    return windows


def build_times(rows: int, step_s: float) -> Ints:
    """Return [rows] times with a step, from `START_NS`, for a source that has none."""
    return START_NS + np.arange(rows, dtype=np.int64) * round(step_s * SECOND_NS)
