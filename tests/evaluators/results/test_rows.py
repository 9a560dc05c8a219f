"""Result rows come back from a file, and from compressed parts, as they were stored."""

from __future__ import annotations

import pickle
import random
import tracemalloc
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from faultset.core.errors import DataError
from faultset.evaluators.results.rows import ROWS_VERSION, CompressedRows, compress_rows, read_rows, write_rows
from faultset.evaluators.results.truth import FaultTruth


def test_rows_survive_being_stored(make, tmp_path: Path):
    rows = [make.detection(make.truth("e1"), range(65, 101)), make.detection(make.healthy("h1"), [])]
    rows += [
        make.row(
            make.truth("e9", calls=(("a", "b"),)),
            ranking={"a": 0.5},
            given_alarm_ns=7,
            alarm_source="ksigma",
            needs=("sli",),
        )
    ]
    write_rows(rows, tmp_path / "results.parquet")
    assert read_rows(tmp_path / "results.parquet") == sorted(rows, key=lambda row: row.key)


def test_a_file_of_another_kind_is_refused(tmp_path: Path):
    (tmp_path / "results.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataError, match="cannot be read as results"):
        read_rows(tmp_path / "results.parquet")


@pytest.mark.parametrize("version", [ROWS_VERSION - 1, ROWS_VERSION + 1])
def test_rows_of_another_version_are_refused(make, tmp_path: Path, version: int):
    path = tmp_path / "results.parquet"
    write_rows([make.row(make.truth())], path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"faultset.rows": str(version)}), path)
    with pytest.raises(DataError, match=f"holds results in layout {version}, expected {ROWS_VERSION}; run"):
        read_rows(path)


def test_every_fault_of_an_episode_is_stored(make, tmp_path: Path):
    faults = (FaultTruth("crash", "b", "Application", "Code Defect"), FaultTruth("loss", "c", None, None))
    truth = make.truth(
        fault="crash + loss", targets=("b", "c"), causes=(("b",), ("c",)), faults=faults, pauses=((3, 5), (7, 9))
    )
    write_rows([make.row(truth)], tmp_path / "results.parquet")
    (row,) = read_rows(tmp_path / "results.parquet")
    assert row.truth == truth


SERVICES = [f"service-{number}" for number in range(20)]


def test_rows_come_back_with_one_truth_for_each_episode(make):
    rows = [make.detection(make.truth("e1"), range(65, 101)), make.detection(make.healthy("h1"), [])]
    rows += [make.row(make.truth("e1"), ranking={"a": 0.5, "b": float("-inf")}, given_alarm_ns=7, needs=("sli",))]
    parts = CompressedRows()
    parts.add(rows[:2])
    parts.add([])
    parts.add(rows[2:])
    found = parts.rows()
    assert found == rows
    assert len(parts) == 3
    assert found[0].truth is found[2].truth


def test_rows_take_a_quarter_of_what_the_objects_of_a_message_take(make):
    draw = random.Random(1)
    rows = [
        make.row(make.truth(f"e{number}"), ranking={name: draw.random() for name in SERVICES}) for number in range(40)
    ]
    message = pickle.dumps(rows)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        received = pickle.loads(message)
        objects = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(compress_rows(received)) < objects / 4
