"""Telemetry that methods may misread is named with its count."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.datasets.checks.telemetry import telemetry_findings
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.views import EpisodeView


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_example_dataset(tmp_path, episodes=1, seed=1, baseline_s=20, fault_s=20)
    return open_dataset(tmp_path).path(open_dataset(tmp_path).episodes[0])


def messages(folder: Path) -> list[str]:
    return [finding.message for finding in telemetry_findings({"e": EpisodeView(folder)})]


def replace_cells(folder: Path, table: str, column: str, cells: dict[int, Any]) -> pa.Table:
    path = folder / "telemetry" / f"{table}.parquet"
    rows = pq.read_table(path)
    values = rows[column].to_pylist()
    for row, cell in cells.items():
        values[row] = cell
    position = rows.column_names.index(column)
    pq.write_table(rows.set_column(position, rows.schema.field(position), pa.array(values, rows[column].type)), path)
    return rows


def test_sound_telemetry_has_no_finding(folder: Path) -> None:
    assert messages(folder) == []


@pytest.mark.parametrize(
    ("value", "words"), [(math.nan, "are not a number"), (math.inf, "are infinite"), (-math.inf, "are infinite")]
)
def test_samples_that_are_no_finite_number_are_counted(folder: Path, value: float, words: str) -> None:
    rows = pq.read_table(folder / "telemetry" / "metrics.parquet")
    gauges = [row for row, kind in enumerate(rows["kind"].to_pylist()) if kind == "gauge"][:2]
    replace_cells(folder, "metrics", "value", dict.fromkeys(gauges, value))
    (message,) = messages(folder)
    metric = rows["metric"][gauges[0]]
    assert message == f"2 of {len(rows):,} samples of metrics in 1 episode {words} (first: e, {metric})"


def test_counters_below_zero_are_counted_and_gauges_may_be_negative(folder: Path) -> None:
    kinds = pq.read_table(folder / "telemetry" / "metrics.parquet")["kind"].to_pylist()
    replace_cells(folder, "metrics", "value", {kinds.index("counter"): -1.0, kinds.index("gauge"): -1.0})
    (message,) = messages(folder)
    assert message.startswith("1 of ")
    assert "samples of counters in 1 episode are negative (first: e, " in message


def test_spans_whose_parent_is_missing_are_counted_with_their_share(folder: Path) -> None:
    rows = replace_cells(folder, "spans", "parent_span_id", {0: "00000000000000ff", 1: "00000000000000fe", 2: None})
    (message,) = messages(folder)
    assert message.startswith(
        f"2 of {len(rows):,} spans ({2 / len(rows):.1%}) in 1 episode have a parent that is missi"
    )


@pytest.mark.parametrize("form", ["ABCDEF", "order-7", "ab-cd"])
def test_ids_of_another_form_are_counted(folder: Path, form: str) -> None:
    replace_cells(folder, "spans", "trace_id", {0: form})
    (message,) = messages(folder)
    assert message.startswith("1 of ")
    assert message.endswith(f"are not lower-case hex digits (first: e, {form})")


def test_a_gap_that_all_series_have_in_common_is_named_and_one_of_a_single_series_is_not(folder: Path) -> None:
    path = folder / "telemetry" / "metrics.parquet"
    rows = pq.read_table(path)
    start_ns = EpisodeView(folder).window[0]
    seconds = (rows["time"].cast(pa.int64()).to_numpy() - start_ns) / 1e9
    inside = (seconds > 10) & (seconds < 20)
    pq.write_table(rows.filter(pa.array(~(inside & (rows["metric"].to_numpy() == rows["metric"][0].as_py())))), path)
    assert messages(folder) == []
    pq.write_table(rows.filter(pa.array(~inside)), path)
    (message,) = messages(folder)
    assert message.startswith("in 1 episode no series of metrics has a sample for a while (first: e, 1")
