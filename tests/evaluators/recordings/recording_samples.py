"""Recordings of one hour with metrics only, whose level jumps in incidents, and rows about windows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.recordings import RecordingWriter
from faultset.datasets.format.versions import create_version
from tests.datasets.recorded_samples import at, context, incident

STEP_S = 5
LENGTH_S, CHUNK_S = 3600, 1200


ANOMALY = {"fault": "anomaly", "targets": [], "root_causes": [], "verdict": "unknown", "first_manifest": None}
"""An incident of an imported series."""


def write_recording(
    root: Path,
    name: str = "r1",
    incidents: Sequence[tuple[float, float]] = (),
    *,
    seed: int = 0,
    anomaly: bool = False,
    **tables: Any,
) -> None:
    """Append a recording to a dataset without a version.

    Parameters
    ----------
    incidents
        Start and length of each incident in seconds; the metrics of geo jump in it.
    tables
        Rows of other truth tables, and changes of the `context`.
    """
    changes = ANOMALY if anomaly else {}
    rows = [incident(f"{name}{number}", start, length, **changes) for number, (start, length) in enumerate(incidents)]
    writer = RecordingWriter(root, context(name, **tables.pop("context", {})))
    rng = np.random.default_rng(seed)
    for first_s in range(0, LENGTH_S, CHUNK_S):
        inside = [row for row in rows if at(first_s) <= row["inject_start"] < at(first_s + CHUNK_S)]
        truth = {"incidents": inside, **(tables if first_s == 0 else {})}
        metrics = [_metrics(first_s, first_s + CHUNK_S, incidents, rng)]
        writer.append(at(first_s), at(first_s + CHUNK_S), {"metrics": metrics}, truth=truth)


def _metrics(first_s: int, last_s: int, incidents: Sequence[tuple[float, float]], rng: np.random.Generator) -> pa.Table:
    seconds = np.arange(first_s, last_s, STEP_S)
    columns: dict[str, list[Any]] = {name: [] for name in ("time", "service", "metric", "value")}
    for service in ("front", "geo"):
        for metric in ("cpu_usage", "memory_usage"):
            values = 100 + rng.normal(0, 1, len(seconds))
            for start_s, length_s in incidents if service == "geo" else ():
                values[(seconds >= start_s) & (seconds < start_s + length_s)] += 50
            columns["time"] += [at(second + 0.5) for second in seconds.tolist()]
            columns["service"] += [service] * len(seconds)
            columns["metric"] += [metric] * len(seconds)
            columns["value"] += values.tolist()
    count = len(columns["time"])
    words = {
        "pod": [f"{name}-1" for name in columns["service"]],
        "container": columns["service"],
        "labels": ["{}"] * count,
    }
    return pa.table(
        {
            "time": pa.array(columns["time"], pa.timestamp("ns", "UTC")),
            "service": columns["service"],
            "metric": columns["metric"],
            "kind": ["gauge"] * count,
            "value": columns["value"],
            **words,
        }
    ).select(["time", "service", "pod", "container", "labels", "metric", "kind", "value"])


def recorded_dataset(root: Path, recordings: Mapping[str, Sequence[tuple[float, float]]], **options: Any) -> Dataset:
    """Write recordings with these incidents as a dataset."""
    for seed, (name, incidents) in enumerate(recordings.items()):
        write_recording(root, name, incidents, seed=seed, **options)
    create_version(root, provenance={"source": "test"})
    return open_dataset(root)
