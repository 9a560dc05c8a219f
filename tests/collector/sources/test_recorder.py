"""Added sources of an episode: whatever one of them does, it is one sentence, and the others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faultset.collector.apps import load_app
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal import Journal
from faultset.collector.sources.recorder import SourceRecorder
from faultset.collector.sources.registry import source_spec
from faultset.collector.sources.sampling import SampledSource
from faultset.core.errors import PlatformError
from faultset.datasets.format.schemas import AddedColumn
from faultset.datasets.metrics.roles import MetricRole


class Meter(SampledSource):
    """What the machine draws."""

    table = "power"
    columns = (AddedColumn(name="watts", type="double", unit="W", meaning="drawn power"),)

    def sample(self) -> Iterator[dict[str, Any]]:
        yield {"watts": 80.0}


class Unmade(Meter):
    """Fails when it is made."""

    def __init__(self, target: Any):
        raise PlatformError("the meter is not plugged in")


class Stopping(Meter):
    """Fails when it is started."""

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
    """Fails when it is closed."""

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
