"""Result rows come back from a file as they were stored."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from faultset.core.errors import DataError
from faultset.evaluators.results.rows import ROWS_VERSION, read_rows, write_rows
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


def test_rows_of_another_version_are_refused(make, tmp_path: Path):
    path = tmp_path / "results.parquet"
    write_rows([make.row(make.truth())], path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"faultset.rows": str(ROWS_VERSION + 1)}), path)
    with pytest.raises(DataError, match=f"holds results in layout {ROWS_VERSION + 1}, this release reads"):
        read_rows(path)


def test_every_fault_of_an_episode_is_stored(make, tmp_path: Path):
    faults = (FaultTruth("crash", "b", "Application", "Code Defect"), FaultTruth("loss", "c", None, None))
    truth = make.truth(
        fault="crash + loss", targets=("b", "c"), causes=(("b",), ("c",)), faults=faults, pauses=((3, 5), (7, 9))
    )
    write_rows([make.row(truth)], tmp_path / "results.parquet")
    (row,) = read_rows(tmp_path / "results.parquet")
    assert row.truth == truth
