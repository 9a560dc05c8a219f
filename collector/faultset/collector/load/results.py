"""The results file, which grows while the load is running and is readable at any time, even after a kill.

It begins with a line of JSON that names the endpoints; records of fixed size follow. A request gets a record when it
is sent and another with the same number when its response arrives; the last one counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

OUTCOMES = ("ok", "http_error", "refused", "timeout", "unfinished")
UNFINISHED = OUTCOMES.index("unfinished")
NONE = -1

RECORD = np.dtype(
    [
        ("scheduled", "<i8"),
        ("sent", "<i8"),
        ("latency", "<i8"),
        ("number", "<u4"),
        ("status", "<i2"),
        ("endpoint", "u1"),
        ("outcome", "u1"),
    ]
)


class ResultFile:
    """Writes results, one record at a time."""

    def __init__(self, path: Path, endpoints: Sequence[str]):
        self._output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        os.write(self._output, json.dumps({"endpoints": list(endpoints)}).encode() + b"\n")
        self._record = np.zeros(1, RECORD)

    def write(
        self, *, number: int, scheduled: int, sent: int, endpoint: int, latency: int, status: int, outcome: str
    ) -> None:
        """Append one record; times are in ns, and `NONE` marks an unknown latency or status."""
        self._record[0] = (scheduled, sent, latency, number, status, endpoint, OUTCOMES.index(outcome))
        os.write(self._output, self._record.tobytes())

    def close(self) -> None:
        os.close(self._output)


def read_results(path: Path, first: int = 0) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the endpoints and one record per request, in the order of the schedule; skip the `first` records.

    An incomplete record at the end is ignored; without a file, the result is empty.
    """
    endpoints, records = _read_records(path, first)
    _, last_from_end = np.unique(records["number"][::-1], return_index=True)
    latest = records[len(records) - 1 - last_from_end]
    return endpoints, latest[np.argsort(latest["scheduled"], kind="stable")]


def first_record_after(path: Path, time_ns: int, first: int = 0) -> int:
    """Return how many records, counted from `first`, come before the first one scheduled at `time_ns` or later."""
    _, records = _read_records(path, first)
    later = np.flatnonzero(records["scheduled"] >= time_ns)
    return int(later[0]) if len(later) else len(records)


def _read_records(path: Path, first: int) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the endpoints and raw records; an incomplete one at the end is ignored."""
    try:
        with path.open("rb") as file:
            header = file.readline()
            if not header.endswith(b"\n"):
                return (), np.zeros(0, RECORD)
            file.seek(first * RECORD.itemsize, os.SEEK_CUR)
            data = file.read()
    except FileNotFoundError:
        return (), np.zeros(0, RECORD)
    records = np.frombuffer(data, RECORD, count=len(data) // RECORD.itemsize)
    return tuple(json.loads(header)["endpoints"]), records
