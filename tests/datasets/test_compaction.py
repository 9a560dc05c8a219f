"""Compacted datasets say the same in less space."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faultset.core.console import root as faultset
from faultset.core.errors import UsageError
from faultset.datasets.checks.verification import verify
from faultset.datasets.compaction import compact_dataset
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.episodes import WRITTEN, run_digest
from faultset.datasets.format.labels import read_label
from faultset.datasets.format.schemas import TABLES, time_column
from faultset.datasets.format.versions import create_version
from faultset.datasets.views import EpisodeView


@pytest.fixture(scope="module")
def compacted(few_episodes: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset]:
    made = compact_dataset(few_episodes, tmp_path_factory.mktemp("compacted") / "small")
    return open_dataset(few_episodes), made


SAME = ["time", "pod", "operation", "kind", "duration_ns"]
"""Columns that tell spans apart without their ids."""


def places_of_equal_values(values: pd.Series) -> list[int]:
    """Number values by their first appearance: two columns with equal numbers group their rows alike."""
    return pd.factorize(values)[0].tolist()


def test_ids_group_spans_and_lines_as_before_and_everything_else_is_as_it_was(compacted) -> None:
    before, after = compacted
    assert after.episodes == before.episodes
    assert after.version_file.splits == before.version_file.splits
    for episode in before.episodes:
        old, new = before.view(episode), after.view(episode)
        assert after.label(episode) == before.label(episode)
        for table in TABLES.keys() - {"spans", "logs"}:
            assert new.table(table).equals(old.table(table)), table
        ids = [pd.concat([v.spans()["span_id"], v.spans()["parent_span_id"], v.logs()["span_id"]]) for v in (old, new)]
        assert places_of_equal_values(ids[0]) == places_of_equal_values(ids[1])
        ids = [pd.concat([v.spans()["trace_id"], v.logs()["trace_id"]]) for v in (old, new)]
        assert places_of_equal_values(ids[0]) == places_of_equal_values(ids[1])
        same = [name for name in TABLES["spans"].names if not name.endswith("_id")]
        pd.testing.assert_frame_equal(new.spans()[same], old.spans()[same])


def test_no_id_comes_in_two_episodes(compacted) -> None:
    _, after = compacted
    for name in ("trace_id", "span_id"):
        ids = [set(after.view(episode).spans()[name]) for episode in after.episodes]
        assert len(set.union(*ids)) == sum(map(len, ids))
        assert {len(one) for one in set.union(*ids)} == {32 if name == "trace_id" else 16}


def test_a_line_names_the_numbers_of_its_trace_and_span(compacted) -> None:
    _, after = compacted
    named = 0
    for episode in after.episodes:
        for line in after.view(episode).logs().itertuples():
            for name in ("trace_id", "span_id"):
                found = re.search(rf"{name}=(\w+)", line.message)
                if found:
                    named += 1
                    assert found[1] == getattr(line, name)
    assert named > 1000


def test_it_takes_less_than_half_the_space_and_is_a_sound_dataset(compacted) -> None:
    before, after = compacted

    def size(dataset: Dataset) -> int:
        return sum((dataset.path(e) / f).stat().st_size for e in dataset.episodes for f in dataset.files[e])

    assert size(after) < 0.46 * size(before)
    assert [found for found in verify(after.root) if found.severity == "error"] == []
    assert after.provenance["compacted_from"]["version"] == before.version


def test_readers_other_than_arrow_read_the_encodings_that_take_least(compacted) -> None:
    duckdb = pytest.importorskip("duckdb")
    _, after = compacted
    encodings: set[str] = set()
    episode = after.episodes[0]
    for table in TABLES:
        path = after.path(episode) / "telemetry" / f"{table}.parquet"
        found = duckdb.sql(f"SELECT * FROM read_parquet('{path}')").arrow().read_all()
        wanted = after.view(episode).table(table)
        assert found.num_rows == len(wanted)
        for name in wanted.column_names:
            kind = pa.int64() if pa.types.is_timestamp(wanted[name].type) else pa.string()
            assert found[name].cast(kind).to_pylist() == wanted[name].cast(kind).to_pylist(), name
        file = pq.ParquetFile(path).metadata
        groups = [file.row_group(group) for group in range(file.num_row_groups)]
        columns = [group.column(place) for group in groups for place in range(file.num_columns)]
        encodings |= {one for column in columns for one in column.encodings}
    assert {"DELTA_BINARY_PACKED", "RLE_DICTIONARY"} <= encodings


def test_a_share_of_the_traces_is_kept_whole_and_all_lines_are(few_episodes: Path, tmp_path: Path) -> None:
    before, after = open_dataset(few_episodes), compact_dataset(few_episodes, tmp_path / "few", traces=0.25)
    kept = total = 0
    for episode in before.episodes:
        old, new = before.view(episode).spans(), after.view(episode).spans()
        kept, total = kept + new["trace_id"].nunique(), total + old["trace_id"].nunique()
        known = new.groupby(SAME, observed=True).size().rename("found").reset_index()
        found = old.merge(known, on=SAME, how="left")["found"].notna()
        assert found.groupby(old["trace_id"].to_numpy()).nunique().eq(1).all()
        assert found.sum() == len(new)
        assert len(before.view(episode).logs()) == len(after.view(episode).logs())
        lines = after.view(episode).logs().dropna(subset=["trace_id"])
        without_spans = ~lines["trace_id"].isin(set(new["trace_id"]))
        had_spans = before.view(episode).logs().dropna(subset=["trace_id"])["trace_id"].isin(set(old["trace_id"]))
        marked = lines["trace_id"].str.startswith("f").to_numpy()
        assert marked.any()
        assert (marked == (without_spans.to_numpy() & had_spans.to_numpy())).all()
        assert not new["trace_id"].str.startswith("f").any()
    assert kept / total == pytest.approx(0.25, abs=0.02)
    card = (after.root / "README.md").read_text()
    assert "25% of the traces were kept" in card
    assert "Trace ids without spans begin with f" in card
    again = compact_dataset(few_episodes, tmp_path / "again", traces=0.25)
    assert again.files == after.files


@pytest.fixture
def collected(few_episodes: Path, tmp_path: Path) -> Path:
    """The episodes with journals that hold the digest of their run, as they have had since."""
    root = tmp_path / "collected"
    shutil.copytree(few_episodes, root, ignore=shutil.ignore_patterns("versions", ".cache"))
    for episode in open_dataset(few_episodes).episodes:
        view, label = EpisodeView(root / "episodes" / episode), read_label(root / "episodes" / episode)
        times = {table: view.table(table)[time_column(table)] for table in view.tables}
        digest = run_digest(times, view_start_ns=label.view_start_ns, inject_start_ns=label.inject_start_ns)
        with (root / "episodes" / episode / "truth" / "journal.jsonl").open("a") as journal:
            note = {"seq": 99, "state": "note", "verb": WRITTEN, "time_ns": 0, "args": {"digest": digest}}
            journal.write(json.dumps(note) + "\n")
    create_version(root, provenance={})
    return root


def journal_errors(dataset: Dataset) -> list[str]:
    return [str(found) for found in verify(dataset.root) if found.check == "journal"]


def test_journal_telemetry_and_label_stay_of_the_same_run_when_traces_are_left_out(
    collected: Path, tmp_path: Path
) -> None:
    assert journal_errors(open_dataset(collected)) == []
    assert journal_errors(compact_dataset(collected, tmp_path / "few", traces=0.25)) == []


def test_a_journal_of_another_run_is_still_one_when_traces_are_left_out(collected: Path, tmp_path: Path) -> None:
    names = open_dataset(collected).episodes[:2]
    first, second = (collected / "episodes" / name / "truth" / "journal.jsonl" for name in names)
    first.write_text(second.read_text())
    create_version(collected, provenance={})
    (error,) = journal_errors(compact_dataset(collected, tmp_path / "few", traces=0.25))
    assert names[0] in error


def test_a_share_out_of_range_is_one_sentence(few_episodes: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="above 0 and at most 1, got 0"):
        compact_dataset(few_episodes, tmp_path / "none", traces=0)
    arguments = [str(few_episodes), str(tmp_path / "x"), "--traces", "2"]
    done = CliRunner().invoke(faultset, ["dataset", "compact", *arguments])
    assert done.exit_code == 2
    assert not (tmp_path / "x").exists()
