"""Check that telemetry sources of campaigns and of platforms fulfil their contracts."""

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
from faultset.collector.sources.recorder import read_rows
from faultset.collector.sources.registry import SourceSpec, load_source, source_spec
from faultset.datasets.format.schemas import TABLES, time_column, without_episode


def check_source(
    source: str | type[Any],
    *,
    platform: Any = None,
    app: str = "hotel",
    record_s: float = 0.5,
    interval_s: float = 0.1,
    min_rows: int = 1,
) -> pa.Table:
    """Record briefly with an added source, check its contract, and return the rows.

    Parameters
    ----------
    source
        Name of an installed source, or its class.
    platform
        Passed to the source as `target.platform`; by default an in-memory platform.
    app
        The application on the default platform: a name, or the path of a folder or file.
    record_s
        Recording time.
    interval_s
        Sampling interval.
    min_rows
        Minimum number of rows.

    Raises
    ------
    UsageError
        The declaration of the source is invalid.
    AssertionError
        The contract is violated; the message says how.
    """
    spec = load_source(source) if isinstance(source, str) else source_spec(source.__name__.lower(), source)
    with tempfile.TemporaryDirectory(prefix="faultset-") as folder:
        if platform is None:
            platform = FakePlatform(load_app(app), Journal(Path(folder) / "journal.jsonl"))
            platform.deploy()
        working = Path(folder) / "source"
        working.mkdir()
        target = SourceTarget(platform=platform, schema=spec.schema, interval_s=interval_s, folder=working)
        spec.source_class(target).close()  # an episode may end before its sources start
        return _record_rows(spec, target, record_s, min_rows)


def _record_rows(spec: SourceSpec, target: SourceTarget, record_s: float, min_rows: int) -> pa.Table:
    """Record for a while, check the rows of the window, and return them; close the source twice."""
    recorder = spec.source_class(target)
    start_ns = time.time_ns()
    try:
        recorder.start()
        time.sleep(record_s)
        end_ns = time.time_ns()
        # rows that started in the window may arrive a little later
        time.sleep(record_s / 2)
        try:
            rows = read_rows(spec, recorder, start_ns, end_ns)
        except ValueError as error:
            raise AssertionError(f"the source {spec.name} violates its contract: {error}") from None
        assert len(rows) >= min_rows, f"{record_s:g} s must give at least {min_rows} rows, got {len(rows)}"
        again = read_rows(spec, recorder, start_ns, end_ns)
        assert again.equals(rows), "reading a window twice must give the same rows"
        assert len(read_rows(spec, recorder, start_ns, start_ns)) == 0, "an empty window must have no rows"
    finally:
        recorder.close()
        recorder.close()
    return rows


def check_platform_source(source: Source, start_ns: int, end_ns: int, *, min_rows: int = 0) -> None:
    """Check that a source of a platform fulfils the contract of `Source`.

    Parameters
    ----------
    start_ns, end_ns
        A past window, in UTC nanoseconds.
    min_rows
        Minimum number of rows in the window.

    Raises
    ------
    AssertionError
        The contract is violated; the message says how.
    """
    assert source.table in TABLES, f"table must be one of {', '.join(TABLES)}, got {source.table!r}"
    interval_s = source.interval_s
    assert interval_s is None or interval_s > 0, f"interval_s must be None or above 0, got {interval_s!r}"
    rows = _read(source, start_ns, end_ns)
    assert rows.num_rows >= min_rows, f"the window must have at least {min_rows} rows, got {rows.num_rows}"
    times = rows[time_column(source.table)].cast(pa.int64()).to_pylist()
    outside = [time_ns for time_ns in times if not start_ns <= time_ns < end_ns]
    assert not outside, f"{len(outside)} of {len(times)} rows are outside the window, for example at {outside[0]}"
    second_rows = _read(source, start_ns, end_ns)
    assert second_rows.num_rows == rows.num_rows, (
        f"two reads of one window return {rows.num_rows} and {second_rows.num_rows} rows; they must be the same"
    )
    assert _read(source, start_ns, start_ns).num_rows == 0, "an empty window must have no rows"


def _read(source: Source, start_ns: int, end_ns: int) -> pa.Table:
    expected = without_episode(TABLES[source.table])
    batches = list(source.snapshot(start_ns, end_ns))
    for batch in batches:
        assert batch.schema.equals(expected), (
            f"the schema of {source.table} must be\n{expected}\nbut snapshot yields\n{batch.schema}"
        )
    return pa.Table.from_batches(batches, schema=expected)
