"""Result rows come back from a file as they were stored, also from files of older releases."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from faultset.core.errors import DataError
from faultset.evaluators.leaderboards.leaderboard import leaderboard_of
from faultset.evaluators.results.rows import ROWS_VERSION, read_rows, write_rows
from faultset.evaluators.results.truth import FaultTruth

VERSION_1 = Path(__file__).parent / "data/results-version-1.parquet"
"""Four rows that the release before version 2 wrote."""
VERSION_2 = VERSION_1.with_name("results-version-2.parquet")
SECOND = 1_000_000_000


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


def test_rows_of_version_1_are_read_under_their_new_names():
    rows = {(row.task, row.protocol): row for row in read_rows(VERSION_1)}
    onset = rows["rca", "detected"].truth.onset_ns
    assert onset is not None
    assert rows["localization", "detected"].given_alarm_ns == onset + 6 * SECOND
    assert rows["localization", "detected"].alarm_source == "ksigma"
    assert rows["localization", "oracle"].given_alarm_ns == onset
    assert rows["rca", "detected"].majority_label == ("Application", "Code Defect")
    table = leaderboard_of(list(rows.values())).table("rca", "detected", app="shop")
    assert table is not None
    assert table.floor["joint"].value == 1.0


def test_rows_of_version_2_are_read_without_the_code_of_their_methods():
    rows = read_rows(VERSION_2)
    assert {(row.baseline, row.code, row.method_code) for row in rows} == {
        ("ksigma", "0.1.0", ""),
        ("max-z", "0.1.0", ""),
    }
    assert leaderboard_of(rows).table("localization", "oracle", app="shop") is not None


def test_rows_of_a_later_version_are_refused(make, tmp_path: Path):
    path = tmp_path / "results.parquet"
    write_rows([make.row(make.truth())], path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"faultset.rows": str(ROWS_VERSION + 1)}), path)
    with pytest.raises(DataError, match=f"holds results in layout {ROWS_VERSION + 1}, this release reads 1 to"):
        read_rows(path)


def test_every_fault_of_an_episode_is_stored_and_files_without_that_are_read(make, tmp_path: Path):
    faults = (FaultTruth("crash", "b", "Application", "Code Defect"), FaultTruth("loss", "c", None, None))
    truth = make.truth(
        fault="crash + loss", targets=("b", "c"), causes=(("b",), ("c",)), faults=faults, pauses=((3, 5), (7, 9))
    )
    write_rows([make.row(truth)], tmp_path / "results.parquet")
    (row,) = read_rows(tmp_path / "results.parquet")
    assert row.truth == truth
    table = pq.read_table(tmp_path / "results.parquet").drop_columns(["faults", "pauses"])
    pq.write_table(table.replace_schema_metadata({"faultset.rows": "4"}), tmp_path / "older.parquet")
    older = read_rows(tmp_path / "older.parquet")[0].truth
    assert (older.faults, older.pauses) == ((), ())
