"""The checks of sources of telemetry: of those that a campaign adds, and of those that a platform has."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from faultset.collector.apps import load_app
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal import Journal
from faultset.collector.sources.contract import Source, SourceTarget
from faultset.collector.sources.recorder import checked_rows
from faultset.collector.sources.registry import load_source, source_spec
from faultset.datasets.format.schemas import TABLES, time_column, without_episode


def check_source(
    source: str | type[Any],
    *,
    platform: Any = None,
    app: str = "hotel",
    record_s: float = 0.5,
    interval_s: float = 0.1,
    least_rows: int = 1,
) -> pa.Table:
    """Record with an added source for a short time, check what it promises, and return the rows.

    Parameters
    ----------
    source
        Name of an installed source, or its class.
    platform
        What the source is given as `target.platform`; an application on a platform in memory when left out.
    app
        The application on that platform: a name, or the path of a folder or file.
    record_s
        How long to record.
    interval_s
        The sampling interval that the source is asked for.
    least_rows
        How many rows there must be.

    Raises
    ------
    UsageError
        What it declares cannot be used.
    AssertionError
        A promise is broken; the message says which.
    """
    spec = load_source(source) if isinstance(source, str) else source_spec(source.__name__.lower(), source)
    with tempfile.TemporaryDirectory(prefix="faultset-") as folder:
        if platform is None:
            platform = FakePlatform(load_app(app), Journal(Path(folder) / "journal.jsonl"))
            platform.deploy()
        working = Path(folder) / "source"
        working.mkdir()
        target = SourceTarget(platform=platform, schema=spec.schema, interval_s=interval_s, folder=working)
        never = spec.make(target)
        never.close()  # an episode may end before its sources have started
        made = spec.make(target)
        start_ns = time.time_ns()
        try:
            made.start()
            time.sleep(record_s)
            end_ns = time.time_ns()
            # what was begun in the window may take a moment to be there
            time.sleep(record_s / 2)
            try:
                rows = checked_rows(spec, made, start_ns, end_ns)
            except ValueError as error:
                raise AssertionError(f"the source {spec.name} breaks a promise: {error}") from None
            assert len(rows) >= least_rows, f"{len(rows)} rows in {record_s:g} s, but at least {least_rows} are wanted"
            again = checked_rows(spec, made, start_ns, end_ns)
            assert again.equals(rows), "reading a window twice gives other rows the second time"
            assert len(checked_rows(spec, made, start_ns, start_ns)) == 0, "an empty window has rows"
        finally:
            made.close()
            made.close()
        return rows


def check_platform_source(source: Source, start_ns: int, end_ns: int, *, least_rows: int = 0) -> None:
    """Check that a source of a platform keeps what `Source` promises.

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
    times = rows[time_column(source.table)].cast(pa.int64()).to_pylist()
    outside = [time_ns for time_ns in times if not start_ns <= time_ns < end_ns]
    assert not outside, f"{len(outside)} of {len(times)} rows are outside of the window, for instance at {outside[0]}"
    again = _read(source, start_ns, end_ns)
    assert again.num_rows == rows.num_rows, f"reading twice gives {rows.num_rows} rows, then {again.num_rows}"
    assert _read(source, start_ns, start_ns).num_rows == 0, "an empty window has rows"


def _read(source: Source, start_ns: int, end_ns: int) -> pa.Table:
    expected = without_episode(TABLES[source.table])
    batches = list(source.snapshot(start_ns, end_ns))
    for batch in batches:
        assert batch.schema.equals(expected), (
            f"the schema of {source.table} must be\n{expected}\nbut snapshot yields\n{batch.schema}"
        )
    return pa.Table.from_batches(batches, schema=expected)
