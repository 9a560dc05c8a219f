"""The check of sources finds broken promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from faultset.collector.platforms.fake import FakeSource
from faultset.collector.testing import check_source

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
    check_source(FakeSource("events", ROWS), 5, 25, least_rows=2)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (FakeSource("events", []), "the window has 0 rows"),
        (Unbounded("events", ROWS), "1 of 2 rows are outside"),
        (ReadableOnce("events", ROWS), "reading twice gives 2 rows, then 0"),
        (Unlike("events", ROWS), "the schema of events must be"),
    ],
)
def test_a_broken_promise_is_named(source: FakeSource, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_source(source, 5, 20 if isinstance(source, Unbounded) else 25, least_rows=1)
