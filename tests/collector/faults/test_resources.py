"""What a pod used of the CPU is read from any source of metrics, and sooner from one that answers for one series."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.resources import counter_now, cpu_cores
from faultset.collector.platforms.fake import FakePlatform, FakeSource
from faultset.collector.platforms.journal import Journal

CPU = "container_cpu_usage_seconds_total"
SECOND = 1_000_000_000


class FarSource(FakeSource):
    """A source that must not be asked for everything."""

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        raise AssertionError("asked for all series")

    def recent(self, metric: str, pod: str, window_s: float) -> pa.Table:
        since = time.time_ns() - int(window_s * 1e9)
        rows = [r for r in self.rows if (r["metric"], r["pod"]) == (metric, pod) and r["time"] >= since]
        schema = pa.schema([("time", pa.timestamp("ns", tz="UTC")), ("value", pa.float64())])
        return pa.Table.from_pylist([{"time": r["time"], "value": r["value"]} for r in rows], schema=schema)


@pytest.fixture(params=[FakeSource, FarSource])
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakePlatform]:
    now = time.time_ns()
    names = {"service": "geo", "container": "geo", "metric": CPU, "labels": "{}", "kind": "counter"}
    rows = [{**names, "time": now - n * SECOND, "pod": "geo-1", "value": 100.0 - 0.5 * n} for n in range(10, 0, -1)]
    rows += [{**row, "pod": "geo-2", "value": 7.0} for row in rows]
    rows.append({**rows[0], "time": now - 500 * SECOND, "value": 0.0})
    journal = Journal(tmp_path / "journal.jsonl")
    made = FakePlatform(load_app("hotel"), journal)
    made.source_kinds["metrics"] = request.param
    made.rows["metrics"] = rows
    yield made
    journal.close()


def test_the_mean_use_is_the_growth_of_the_pods_own_counter(platform: FakePlatform) -> None:
    assert cpu_cores(platform, "geo-1") == pytest.approx(0.5)
    assert cpu_cores(platform, "geo-2") == 0.0


def test_a_counter_is_as_of_its_newest_sample_and_0_without_any(platform: FakePlatform) -> None:
    assert counter_now(platform, "geo-1", CPU) == 99.5
    assert counter_now(platform, "geo-3", CPU) == 0.0
    assert cpu_cores(platform, "geo-3") == 0.0
