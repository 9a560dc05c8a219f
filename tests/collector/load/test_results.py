"""The file of results and the table made of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from faultset.collector.load.request_source import RequestSource
from faultset.collector.load.results import NONE, ResultFile, read_results
from faultset.datasets.format.schemas import REQUESTS

SECOND = 1_000_000_000


def written(path: Path) -> ResultFile:
    results = ResultFile(path, ["GET /hotels", "POST /user"])
    for number, second in ((1, 10), (2, 11), (3, 12)):
        record = {"number": number, "scheduled": second * SECOND, "sent": second * SECOND + 5, "endpoint": number % 2}
        results.write(**record, latency=NONE, status=NONE, outcome="unfinished")
        if number == 2:
            results.write(**record, latency=7_000_000, status=500, outcome="http_error")
    return results


def test_the_last_record_of_a_request_counts(tmp_path: Path) -> None:
    written(tmp_path / "r").close()
    source = RequestSource(tmp_path / "r")
    (batch,) = source.snapshot(10 * SECOND, 12 * SECOND)
    assert batch.schema.equals(pa.schema([field for field in REQUESTS if field.name != "episode"]))
    rows = batch.to_pylist()
    assert [(row["endpoint"], row["outcome"], row["status"], row["latency_ns"]) for row in rows] == [
        ("POST /user", "unfinished", None, None),
        ("GET /hotels", "http_error", 500, 7_000_000),
    ]
    assert [row["scheduled"].value for row in rows] == [10 * SECOND, 11 * SECOND]


def test_a_record_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r"
    written(path).close()
    path.write_bytes(path.read_bytes()[:-9])
    assert [record["number"] for record in read_results(path)[1]] == [1, 2]


def test_without_a_file_or_rows_there_is_nothing(tmp_path: Path) -> None:
    source = RequestSource(tmp_path / "none")
    assert list(source.snapshot(0, SECOND)) == []
    (tmp_path / "none").write_bytes(b'{"endpo')
    assert list(source.snapshot(0, SECOND)) == []
