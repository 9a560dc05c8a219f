"""Added sources: registration, and recording that survives their failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faultset.collector.apps import load_app
from faultset.collector.platforms.fake import FakePlatform, FakeSource
from faultset.collector.platforms.journal import Journal
from faultset.collector.sources.contract import SampledSource
from faultset.collector.sources.recorder import (
    SourceRecorder,
    check_together,
    load_source,
    load_sources,
    source_spec,
)
from faultset.collector.testing import check_source
from faultset.core.errors import PlatformError, UsageError
from faultset.datasets.format.schemas import AddedColumn
from faultset.datasets.metrics.roles import MetricRole

COLUMN = AddedColumn(name="watts", type="double", unit="W", meaning="drawn power")
ROLE = MetricRole(source="meter", metric="drawn_watts", role="other", unit="W", kind="gauge", combine="sum")


class Meter(SampledSource):
    """What the machine draws."""

    table = "power"
    columns = (COLUMN,)

    def sample(self) -> Iterator[dict[str, Any]]:
        yield {"watts": 80.0}


def like(**attributes: Any) -> type:
    return type("Changed", (Meter,), {"__doc__": Meter.__doc__, **attributes})


class MetricsWithExemplars(FakeSource):
    """Metrics whose server keeps an exemplar for the start of each window."""

    def exemplars(self, start_ns: int, end_ns: int) -> Iterator[dict[str, Any]]:
        if start_ns < end_ns:
            yield {"time": start_ns, "pod": "geo-0", "metric": "m_bucket", "labels": "{}", "value": 0.2}


def test_exemplars_are_a_table_where_the_metrics_have_them(tmp_path: Path) -> None:
    platform = FakePlatform(load_app("hotel"), Journal(tmp_path / "journal.jsonl"))
    platform.source_kinds = {"metrics": MetricsWithExemplars}
    (row,) = check_source("exemplars", platform=platform, record_s=0.01).to_pylist()
    assert (row["pod"], row["value"], row["trace_id"]) == ("geo-0", 0.2, None)


def test_exemplars_of_a_platform_without_them_are_refused() -> None:
    with pytest.raises(PlatformError, match="this platform have no exemplars; leave --sources exemplars out"):
        check_source("exemplars", record_s=0.01)


def test_what_is_declared_becomes_the_schema_of_its_rows() -> None:
    spec = source_spec("meter", Meter)
    assert spec.schema.names == ["time", "watts"]
    assert spec.added_table is not None
    assert (spec.added_table.meaning, spec.schema.field("watts").metadata[b"unit"]) == ("What the machine draws.", b"W")


@pytest.mark.parametrize(
    ("loaded", "sentence"),
    [
        (3, "it must be a class with table, interval_s, start, snapshot, close, got 3"),
        (dict, "got <class 'dict'>, which lacks table"),
        (like(__doc__="no sentence"), "must start with a sentence"),
        (like(table="Power supply"), "is not a valid name of an added table"),
        (like(columns=()), "must have columns in addition to its time"),
        (like(table="requests", columns=()), "rows cannot be added to requests"),
        (like(table="metrics"), "leave columns out"),
        (like(table="metrics", columns=()), "metric_roles must be declared by sources of metrics"),
        (like(table="logs", columns=(), metric_roles=(ROLE,)), "metric_roles must be declared by sources of metrics"),
        (
            like(table="metrics", columns=(), metric_roles=(MetricRole(**{**vars(ROLE), "metric": "up"}),)),
            "the metrics up must have names without",
        ),
    ],
)
def test_a_declaration_that_cannot_be_used_is_refused(loaded: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        source_spec("meter", loaded)


def test_two_sources_of_one_table_or_metric_do_not_fit_together() -> None:
    series = like(table="metrics", columns=(), metric_roles=(ROLE,))
    check_together([source_spec("a", Meter), source_spec("b", series), source_spec("c", like(table="more"))])
    with pytest.raises(UsageError, match="the sources a and b both record the table power"):
        check_together([source_spec("a", Meter), source_spec("b", Meter)])
    with pytest.raises(UsageError, match="both record the metric drawn_watts"):
        check_together([source_spec("a", series), source_spec("b", series)])


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(UsageError, match='unknown source "meter"'):
        load_source("meter")
    assert "meter" not in load_sources()


class Unmade(Meter):
    """Fails in its constructor."""

    def __init__(self, target: Any):
        raise PlatformError("the meter is not plugged in")


class Stopping(Meter):
    """Fails at the start."""

    def start(self) -> None:
        raise SystemExit(3)


class Failing(Meter):
    """Fails at its second sample."""

    calls = 0

    def sample(self) -> Iterator[dict[str, Any]]:
        self.calls += 1
        yield {"watts": 1 / (2 - self.calls)}


class Hanging(Meter):
    """Never answers."""

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        threading.Event().wait()
        yield from ()


class Unlike(Meter):
    """Yields other columns."""

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"volts": [1.0]})


class Undeclared(SampledSource):
    """A metric that is not declared."""

    table = "metrics"
    metric_roles = (MetricRole(source="m", metric="drawn_w", role="other", unit="W", kind="gauge", combine="sum"),)

    def sample(self) -> Iterator[dict[str, Any]]:
        yield {"metric": "other_w", "value": 1, "kind": "gauge"}


class Unclosable(Meter):
    """Fails in close."""

    def close(self) -> None:
        raise OSError("busy")


def recorded(folder: Path, *sources: type[Any], timeout_s: float = 5.0) -> tuple[list[Any], dict[str, str]]:
    platform = FakePlatform(load_app("hotel"), Journal(folder / "journal.jsonl"))
    specs = [source_spec(source.__name__.lower(), source) for source in sources]
    recorder = SourceRecorder(specs, folder / "sources", timeout_s=timeout_s)
    start_ns = time.time_ns()
    recorder.start(platform, 0.02)
    time.sleep(0.2)
    found = recorder.read(start_ns, time.time_ns())
    recorder.close()
    recorder.close()
    return found, recorder.failures


def test_rows_of_a_window_are_read_with_their_interval(tmp_path: Path) -> None:
    (one,), failures = recorded(tmp_path, Meter)
    assert failures == {}
    assert 3 <= len(one.rows) <= 11
    assert (one.interval_s, one.failure) == (0.02, "")
    assert (tmp_path / "sources" / "meter").is_dir()


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (Unmade, "could not start: the meter is not plugged in"),
        (Stopping, r"could not start: SystemExit: 3 \(.*test_recorder.py, line \d+\)"),
        (Failing, r"could not be read: ZeroDivisionError: division by zero \(.*test_recorder.py, line \d+\)"),
        (Hanging, "could not be read: TimeoutError: no response within 0.5 s"),
        (Unlike, "could not be read: ValueError: snapshot must yield record batches with time: .* got volts: double"),
        (Undeclared, "could not be read: ValueError: the metrics other_w are not declared"),
    ],
)
def test_a_failure_is_one_sentence_and_leaves_the_others_alone(
    source: type[Any], sentence: str, tmp_path: Path
) -> None:
    (bad, good), failures = recorded(
        tmp_path, source, type("Good", (Meter,), {"__doc__": "A.", "table": "good"}), timeout_s=0.5
    )
    assert list(failures) == [bad.spec.name]
    assert len(bad.rows) == 0
    assert bad.rows.schema == bad.spec.schema
    assert len(good.rows) > 0
    assert bad.failure == failures[bad.spec.name]
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(bad.failure)


def test_a_source_that_cannot_be_closed_is_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (one,), failures = recorded(tmp_path, Unclosable)
    assert failures == {}
    assert len(one.rows) > 0
    assert "unclosable could not be closed: OSError: busy" in caplog.text
