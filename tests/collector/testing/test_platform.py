"""The contract checks for platforms and sources of telemetry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faultset.collector.apps import load_app
from faultset.collector.platforms.fake import FakePlatform, FakeSource
from faultset.collector.platforms.hosts import open_host
from faultset.collector.sources.contract import SampledSource
from faultset.collector.testing import check_host, check_platform, check_source
from faultset.collector.testing.platform import check_platform_source
from faultset.datasets.format.schemas import AddedColumn

HOTEL = load_app("hotel")


def test_the_platform_in_memory_passes(tmp_path: Path) -> None:
    check_platform(lambda folder, journal: FakePlatform(HOTEL, journal), tmp_path)


@pytest.mark.parametrize("name", ["local", pytest.param("kubernetes", marks=[pytest.mark.cluster, pytest.mark.slow])])
def test_a_built_in_platform_passes(name: str, tmp_path: Path) -> None:
    host = open_host(name)
    check_host(host)
    check_platform(
        lambda folder, journal: host.create_platform(HOTEL, folder, journal, episode="check", seed=1, step_s=1.0),
        tmp_path,
    )


class Unmerged(FakePlatform):
    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        super()._patch(kind, name, {"spec": change.get("spec", {})})


class NeverUndone(FakePlatform):
    def undo(self, scope: str | None = None) -> None:
        pass


class SecretlyEmpty(FakePlatform):
    @property
    def sources(self) -> Mapping[str, Any]:
        return {name: source for name, source in super().sources.items() if name != "logs"}


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (Unmerged, "patch must merge"),
        (NeverUndone, "undo must leave nothing open in the journal"),
        (SecretlyEmpty, "there is no source of logs"),
    ],
)
def test_a_broken_promise_is_named(broken: type[FakePlatform], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_platform(lambda folder, journal: broken(HOTEL, journal), tmp_path)


EVENT = {"type": "Normal", "reason": "Pulled", "kind": "Pod", "name": "geo-1", "service": "geo", "message": "m"}
ROWS: list[dict[str, Any]] = [{**EVENT, "time": time_ns, "count": 1} for time_ns in (10, 20)]


class Unbounded(FakeSource):
    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        yield from super().snapshot(0, 100)


class ReadableOnce(FakeSource):
    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        yield from super().snapshot(start_ns, end_ns)
        self.rows = []


class Unlike(FakeSource):
    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"time": pa.array([10])})


def test_a_source_that_keeps_its_promises_passes() -> None:
    check_platform_source(FakeSource("events", ROWS), 5, 25, min_rows=2)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (FakeSource("events", []), "the window must have at least 1 rows, got 0"),
        (Unbounded("events", ROWS), "1 of 2 rows are outside"),
        (ReadableOnce("events", ROWS), "two reads of one window return 2 and 0 rows"),
        (Unlike("events", ROWS), "the schema of events must be"),
    ],
)
def test_a_broken_promise_is_named_of_a_source(source: FakeSource, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_platform_source(source, 5, 20 if isinstance(source, Unbounded) else 25, min_rows=1)


class Ticks(SampledSource):
    """A number that grows."""

    table = "ticks"
    columns = (AddedColumn(name="number", type="int64", unit="1", meaning="how often it was asked"),)
    count = 0

    def sample(self) -> Iterator[dict[str, Any]]:
        self.count += 1
        yield {"number": self.count}


class Idle(Ticks):
    """Nothing."""

    def sample(self) -> Iterator[dict[str, Any]]:
        yield from ()


class Null(Ticks):
    """A column that is empty and must not be."""

    def sample(self) -> Iterator[dict[str, Any]]:
        yield {}


class Early(Ticks):
    """Rows of another time."""

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"time": 1, "number": 1}], schema=self.target.schema)


class Fresh(Ticks):
    """Other rows each time."""

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        self.count += 1
        yield pa.RecordBatch.from_pylist([{"time": start_ns, "number": self.count}], schema=self.target.schema)


def test_an_added_source_that_keeps_its_promises_passes() -> None:
    rows = check_source(Ticks, min_rows=3)
    assert rows["number"].to_pylist() == list(range(1, len(rows) + 1))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (Idle, "0.2 s must give at least 1 rows, got 0"),
        (Null, "column number must not be null"),
        (Early, "1 of 1 rows are outside the requested window"),
        (Fresh, "must give the same rows"),
    ],
)
def test_a_broken_promise_of_an_added_source_is_named(source: type[Ticks], sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_source(source, record_s=0.2, interval_s=0.05)
