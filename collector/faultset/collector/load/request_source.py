"""The table of client requests, read from a results file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from faultset.collector.load.results import NONE, OUTCOMES, first_record_after, read_results
from faultset.datasets.format.schemas import REQUESTS

SCHEMA = pa.schema([field for field in REQUESTS if field.name != "episode"])


class RequestSource:
    """Reads the requests that the load has recorded so far."""

    table = "requests"
    interval_s: float | None = None

    def __init__(self, path: Path):
        self._path = path
        self._offset = 0

    def discard(self, before_ns: int) -> None:
        """Skip the records of requests that were scheduled before a time, up to the first later one."""
        self._offset += first_record_after(self._path, before_ns, self._offset)

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the requests that were scheduled in `[start_ns, end_ns)`."""
        endpoints, records = read_results(self._path, self._offset)
        records = records[(records["scheduled"] >= start_ns) & (records["scheduled"] < end_ns)]
        if len(records) == 0:
            return
        yield pa.RecordBatch.from_arrays(
            [
                _convert_times(records["scheduled"]),
                _convert_times(records["sent"]),
                _convert_names(records["endpoint"], endpoints),
                _convert_optional(records["latency"], pa.int64()),
                _convert_optional(records["status"], pa.int32()),
                _convert_names(records["outcome"], OUTCOMES),
            ],
            schema=SCHEMA,
        )

    def close(self) -> None:
        """Do nothing, because no file is kept open."""


def _convert_times(values: np.ndarray) -> pa.Array:
    return pa.array(values.astype("i8")).cast(SCHEMA.field("scheduled").type)


def _convert_optional(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    return pa.array(values.astype("i8"), mask=values == NONE).cast(kind)


def _convert_names(values: np.ndarray, names: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(values.astype("i4")), pa.array(names))
