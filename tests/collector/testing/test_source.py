"""The checks of sources find broken promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from faultset.collector.platforms.fake import FakeSource
from faultset.collector.sources.sampling import SampledSource
from faultset.collector.testing import check_source
from faultset.collector.testing.platform import check_platform_source
from faultset.datasets.format.schemas import AddedColumn

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
def test_a_broken_promise_is_named(source: FakeSource, sentence: str) -> None:
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
