"""Healthy systems make errors too, so no rule "any error at all" finds the faults of core-2."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.core.files import parquet_path
from faultset.core.times import SECOND_NS
from faultset.datasets import open_dataset

CORE = Path(__file__).parents[3] / "datasets" / "core-2"
ERRORS = {
    "spans": ("status", "time", ["error"]),
    "requests": ("outcome", "scheduled", ["timeout", "refused", "http_error"]),
    "logs": ("level", "time", ["warning", "error", "fatal"]),
    "events": ("type", "time", ["Warning"]),
}
"""Table -> column, column of times, and its values that are errors."""
LARGEST = 0.6
Times = npt.NDArray[np.int64]


def read_error_times(recording: Any, table: str) -> Times:
    """Return the sorted times of the errors in a table of a recording."""
    column, time, values = ERRORS[table]
    paths = (recording.path / chunk.folder / "telemetry" / f"{table}.parquet" for chunk in recording.view.chunks)
    rows = pa.concat_tables(pq.read_table(parquet_path(path), columns=[time, column]) for path in paths)
    is_error = np.isin(rows[column].cast(pa.string()).to_pylist(), values)
    return np.sort(rows[time].cast(pa.int64()).to_numpy()[is_error])


@pytest.fixture(scope="module")
def recordings() -> list[tuple[Any, dict[str, Times]]]:
    return [
        (recording, {table: read_error_times(recording, table) for table in ERRORS})
        for recording in open_dataset(CORE).recordings()
    ]


def compute_balanced_accuracy(
    recordings: Sequence[tuple[Any, dict[str, Times]]], tables: Collection[str], seconds: int
) -> float:
    """Return the balanced accuracy of the rule, over the first seconds of incidents and over healthy windows."""
    alarms: dict[bool, list[bool]] = defaultdict(list)
    length = seconds * SECOND_NS
    for recording, errors in recordings:
        starts = [(item.start_ns, True) for item in recording.truth.incidents if item.verdict == "manifest"]
        for stretch in recording.truth.healthy_stretches:
            starts += [(start, False) for start in range(stretch.start_ns, stretch.end_ns - length, length)]
        for start, faulty in starts:
            bounds = (np.searchsorted(errors[table], [start, start + length]) for table in tables)
            alarms[faulty].append(any(first < last for first, last in bounds))
    assert len(alarms[True]) > 100
    return float(np.mean(alarms[True]) + 1 - np.mean(alarms[False])) / 2


@pytest.mark.parametrize("seconds", [10, 30, 60])
def test_no_rule_of_any_error_at_all_separates_faulty_from_healthy(recordings: list[Any], seconds: int) -> None:
    assert compute_balanced_accuracy(recordings, ERRORS, seconds) <= LARGEST


@pytest.mark.parametrize("table", ["spans", "requests", "logs"])
def test_no_kind_of_error_alone_does_in_half_a_minute(recordings: list[Any], table: str) -> None:
    assert compute_balanced_accuracy(recordings, [table], 30) <= LARGEST
