"""The check of a source of telemetry."""

from __future__ import annotations

import pyarrow as pa

from faultset.collector.platforms.api.sources import Source
from faultset.datasets.format.schemas import TABLES


def check_source(source: Source, start_ns: int, end_ns: int, *, least_rows: int = 0) -> None:
    """Check that a source keeps what `Source` promises.

    Parameters
    ----------
    start_ns, end_ns
        A window that has passed, in nanoseconds since 1970.
    least_rows
        How many rows the window must have.

    Raises
    ------
    AssertionError
        A promise is broken; the message says which.
    """
    assert source.table in TABLES, f"there is no table {source.table!r}; the tables are {', '.join(TABLES)}"
    interval_s = source.interval_s
    assert interval_s is None or interval_s > 0, f"interval_s must be None or more than 0, but is {interval_s!r}"
    rows = _read(source, start_ns, end_ns)
    assert rows.num_rows >= least_rows, f"the window has {rows.num_rows} rows, but at least {least_rows} are expected"
    column = "scheduled" if source.table == "requests" else "time"
    times = rows[column].cast(pa.int64()).to_pylist()
    outside = [time_ns for time_ns in times if not start_ns <= time_ns < end_ns]
    assert not outside, f"{len(outside)} of {len(times)} rows are outside of the window, for instance at {outside[0]}"
    again = _read(source, start_ns, end_ns)
    assert again.num_rows == rows.num_rows, f"reading twice gives {rows.num_rows} rows, then {again.num_rows}"
    assert _read(source, start_ns, start_ns).num_rows == 0, "an empty window has rows"


def _read(source: Source, start_ns: int, end_ns: int) -> pa.Table:
    expected = pa.schema([field for field in TABLES[source.table] if field.name != "episode"])
    batches = list(source.snapshot(start_ns, end_ns))
    for batch in batches:
        assert batch.schema.equals(expected), (
            f"the schema of {source.table} must be\n{expected}\nbut snapshot yields\n{batch.schema}"
        )
    return pa.Table.from_batches(batches, schema=expected)
