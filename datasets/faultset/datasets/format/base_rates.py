"""Rates of errors in the healthy systems of a dataset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.files import parquet_path
from faultset.core.times import SECOND_NS
from faultset.datasets.format.card_cells import cell
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.incidents import read_truth_rows
from faultset.datasets.format.labels import Label
from faultset.datasets.format.recording_summaries import RecordingSummary
from faultset.datasets.format.recordings import RECORDINGS
from faultset.datasets.format.stretches import Interval, subtract_intervals

MIN_S = 60
"""Chunks of recordings with less healthy time are left out."""
_BAD_LEVELS = ("warning", "error", "fatal")


@dataclass(frozen=True, kw_only=True)
class BaseRates:
    """Rates of errors in the healthy reference of an episode, or in the healthy time of a chunk of a recording.

    Attributes
    ----------
    error_spans
        Error spans per 1,000 spans.
    bad_lines
        Log lines of level warning or higher per minute.
    warning_events
        Warning events per hour.
    failed_requests
        Failed client requests, in percent of all; unfinished requests do not count as failed.
    """

    error_spans: float
    bad_lines: float
    warning_events: float
    failed_requests: float


def measure_base_rates(root: Path, label: Label) -> BaseRates:
    """Measure the rates of errors in the reference of an episode; a missing table counts as having no errors."""
    folder = root / EPISODES / label.episode / "telemetry"
    return _measure(folder, [(label.view_start_ns, label.reference_end_ns)])


def measure_recording(path: Path, summary: RecordingSummary) -> Iterator[BaseRates]:
    """Yield the rates of errors in each chunk of a recording, without incidents and void stretches."""
    end_ns = summary.chunks[-1].end_ns
    busy = [
        (min(incident.start_ns, incident.inject_start_ns or incident.start_ns), incident.end_ns or end_ns)
        for incident in summary.incidents
    ]
    busy += [(row["start"], row["end"]) for row in read_truth_rows(path, summary.chunks, "voids")]
    for chunk in summary.chunks:
        healthy = subtract_intervals([(chunk.start_ns, chunk.end_ns)], busy)
        if sum(end - start for start, end in healthy) >= MIN_S * SECOND_NS:
            yield _measure(path / chunk.folder / "telemetry", healthy)


def _measure(folder: Path, healthy: Sequence[Interval]) -> BaseRates:
    hours = sum(end - start for start, end in healthy) / (3600 * SECOND_NS)

    def read(table: str, column: str, time: str = "time") -> list[str]:
        path = folder / f"{table}.parquet"
        if not path.exists():
            return []
        rows = pq.read_table(parquet_path(path), columns=[time, column])
        times = rows[time].cast(pa.int64()).to_numpy()
        inside = np.any([(times >= start) & (times < end) for start, end in healthy], axis=0)
        return [str(value).lower() for value in rows[column].filter(pa.array(inside)).to_pylist()]

    spans, outcomes = read("spans", "status"), read("requests", "outcome", "scheduled")
    levels, types = read("logs", "level"), read("events", "type")
    return BaseRates(
        error_spans=1000 * spans.count("error") / max(1, len(spans)),
        bad_lines=sum(level in _BAD_LEVELS for level in levels) / (60 * hours),
        warning_events=types.count("warning") / hours,
        failed_requests=100 * sum(outcome not in ("ok", "unfinished") for outcome in outcomes) / max(1, len(outcomes)),
    )


def build_base_rate_table(
    root: Path,
    labels: Mapping[str, Label],
    apps: Mapping[str, str],
    recordings: Mapping[str, RecordingSummary] | None = None,
) -> str:
    """Return the base rates of every application as a section of the dataset's card."""
    rates: dict[str, list[BaseRates]] = defaultdict(list)
    for recording, summary in (recordings or {}).items():
        rates[cell(summary.context.app_title)] += measure_recording(root / RECORDINGS / recording, summary)
    for episode, label in labels.items():
        rates[apps[episode]].append(measure_base_rates(root, label))
    if not any(rates.values()):
        return ""
    rows = "\n".join(_rows({app: measured for app, measured in rates.items() if measured}))
    units = " and ".join(["healthy references"] * bool(labels) + ["healthy time of chunks"] * bool(recordings))
    return f"""## Errors of healthy systems

Medians of the {units}, with the 5 % and 95 % quantiles.

| app | error spans per 1,000 | warning and error lines per minute | Warning events per hour | failed client requests |
|---|---|---|---|---|
{rows}

"""


def _rows(rates: Mapping[str, list[BaseRates]]) -> Iterator[str]:
    for app, episode_rates in sorted(rates.items()):
        cells = []
        for name, unit in (("error_spans", ""), ("bad_lines", ""), ("warning_events", ""), ("failed_requests", " %")):
            values = [getattr(row, name) for row in episode_rates]
            low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
            cells.append(f"{middle:.1f}{unit} ({low:.1f} to {high:.1f})")
        yield f"| {app} | {' | '.join(cells)} |"
