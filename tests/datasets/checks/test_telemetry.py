"""Telemetry that methods may misread is named with its count."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.datasets.checks.telemetry import reference_findings, telemetry_findings
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.context import read_context
from faultset.datasets.format.episodes import WRITTEN, run_digest
from faultset.datasets.format.schemas import TABLES, time_column
from faultset.datasets.format.versions import create_version
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
    assert message.startswith("no metric has a sample during a gap in 1 episode (first: e, 1")


def references_messages(folder: Path) -> list[str]:
    return [finding.message for finding in reference_findings({"e": EpisodeView(folder)})]


def rewrite(folder: Path, keep) -> None:
    path = folder / "telemetry" / "metrics.parquet"
    table = pq.read_table(path)
    pq.write_table(table.filter(pa.array(keep(table))), path)


def test_a_sound_episode_has_no_finding(folder: Path):
    assert references_messages(folder) == []


def test_a_reference_without_samples_is_named(folder: Path):
    end_ns = read_context(folder).reference_end_ns
    rewrite(folder, lambda table: table["time"].cast(pa.int64()).to_numpy() >= end_ns)
    (message,) = references_messages(folder)
    assert message.startswith("no metric sample in the reference of 1 episode (first: e)")


def test_a_step_longer_than_the_reference_is_named(folder: Path):
    context = read_context(folder)
    changed = dataclasses.replace(context, source_intervals_s={**context.source_intervals_s, "metrics": 60.0})
    (folder / "context.json").write_text(changed.to_json())
    (message,) = references_messages(folder)
    assert message.startswith("the metric step is longer than the reference in 1 episode")


def test_candidates_without_metrics_are_counted(folder: Path):
    rewrite(folder, lambda table: [name != "geo" for name in table["service"].to_pylist()])
    (message,) = references_messages(folder)
    assert message.startswith("services without metrics in 1 episode (first: e, 1 of 6)")


START_NS = 1_760_000_000_000_000_000
SECOND = 1_000_000_000


def state(at_ns: int, name: str) -> dict:
    return {"time": at_ns, "kind": "Deployment", "name": name, "service": name, "state": "{}"}


def patch(at_ns: int, name: str) -> dict:
    return {
        "seq": 1,
        "state": "intent",
        "verb": "patch",
        "time_ns": at_ns,
        "args": {"kind": "Deployment", "name": name},
    }


def journal_errors(root) -> list[str]:
    create_version(root, provenance={})
    return [finding.message for finding in verify(root) if finding.check == "journal"]


def test_changes_that_the_telemetry_shows_are_right(tmp_path, write_episode):
    listed = [state(START_NS, name) for name in ("geo", "rate", "user", "search")]
    write_episode(journal=[patch(START_NS + SECOND, "geo")], objects=[*listed, state(START_NS + SECOND + 7, "geo")])
    assert journal_errors(tmp_path) == []


def test_changes_of_another_run_are_found(tmp_path, write_episode):
    listed = [state(START_NS, name) for name in ("geo", "rate", "user", "search")]
    write_episode(journal=[patch(START_NS + SECOND, "geo")], objects=[*listed, state(START_NS + 9 * SECOND, "geo")])
    assert "none of the changes in the journal" in journal_errors(tmp_path)[0]


def test_telemetry_of_another_run_does_not_have_the_digest_of_the_journal(tmp_path, write_episode):
    first = write_episode("e1", objects=[state(START_NS + 5, "geo")])
    second = write_episode("e2", objects=[state(START_NS + 6, "geo")])
    for folder in (first, second):
        times = {name: pq.read_table(folder / "telemetry" / f"{name}.parquet")[time_column(name)] for name in TABLES}
        digest = run_digest(times, view_start_ns=START_NS, inject_start_ns=None)
        note = {"seq": 1, "state": "note", "verb": WRITTEN, "time_ns": START_NS, "args": {"digest": digest}}
        (folder / "truth" / "journal.jsonl").write_text(json.dumps(note) + "\n")
    assert journal_errors(tmp_path) == []
    shutil.copy(second / "truth" / "journal.jsonl", first / "truth" / "journal.jsonl")
    (message,) = journal_errors(tmp_path)
    assert "come from different runs" in message
