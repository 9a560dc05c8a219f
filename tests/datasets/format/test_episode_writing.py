from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.core.errors import DataError
from faultset.datasets.format import storage
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.format.schemas import TABLES


def test_an_episode_has_every_file_under_its_final_name_only(write_episode, tmp_path):
    path = write_episode("e1")
    assert path == tmp_path / "episodes" / "e1"
    files = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    tables = {f"telemetry/{table}.parquet" for table in TABLES}
    assert files == {"context.json", "truth/label.parquet", "truth/evidence.parquet", "truth/journal.jsonl"} | tables
    assert [entry.name for entry in (tmp_path / "episodes").iterdir()] == ["e1"]


def test_leaving_without_commit_leaves_nothing(tmp_path, rows_of, log):
    with EpisodeWriter(tmp_path, "e1") as writer:
        writer.write_table("logs", [rows_of("logs", [log(1, "hello")])])
        assert (tmp_path / "episodes" / "e1.incomplete").is_dir()
    assert list((tmp_path / "episodes").iterdir()) == []


def test_an_error_inside_the_block_leaves_nothing_and_passes(tmp_path):
    with pytest.raises(ZeroDivisionError), EpisodeWriter(tmp_path, "e1"):
        raise ZeroDivisionError
    assert list((tmp_path / "episodes").iterdir()) == []


def test_an_episode_without_truth_cannot_be_committed(tmp_path):
    with EpisodeWriter(tmp_path, "e1") as writer, pytest.raises(DataError, match=r"lacks context\.json and truth"):
        writer.commit()


def test_an_existing_episode_is_never_overwritten(write_episode):
    write_episode("e1")
    with pytest.raises(DataError, match="never overwritten"):
        write_episode("e1")


def test_what_a_killed_writer_left_is_replaced(tmp_path, write_episode):
    left = tmp_path / "episodes" / "e1.incomplete" / "telemetry"
    left.mkdir(parents=True)
    (left / "junk").write_text("x")
    path = write_episode("e1")
    assert not (path / "telemetry" / "junk").exists()


def test_a_writer_killed_in_the_middle_leaves_no_episode(tmp_path, write_episode):
    program = f"""
        import os, signal
        from faultset.datasets.format.episodes import EpisodeWriter
        with EpisodeWriter({str(tmp_path)!r}, "e1") as writer:
            writer.write_table("logs", [])
            os.kill(os.getpid(), signal.SIGKILL)
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=os.environ | {"PYTHONPATH": paths}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert [entry.name for entry in (tmp_path / "episodes").iterdir()] == ["e1.incomplete"]
    write_episode("e1")
    assert [entry.name for entry in (tmp_path / "episodes").iterdir()] == ["e1"]


@pytest.mark.parametrize("step", ["write_table", "write_text", "flush"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(step, monkeypatch, write_episode, tmp_path):
    def raise_disk_full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "write_table":
        monkeypatch.setattr(pq.ParquetWriter, "write_table", raise_disk_full)
    elif step == "write_text":
        monkeypatch.setattr("faultset.datasets.format.episodes.write_text", raise_disk_full)
    else:
        monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(DataError, match=r"no space left on the disk of .*; free some") as caught:
        write_episode("e1", logs=[{"time": 0, "pod": "p", "container": "c", "message": "m"}])
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "episodes").iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_arrow_reports_a_full_device_in_a_way_that_we_recognize():
    table = pa.table({"a": np.random.default_rng(0).random(200_000)})
    with (
        Path("/dev/full").open("wb", buffering=0) as device,
        pytest.raises(DataError, match="no space left"),
        storage.translate_disk_full(Path("here")),
    ):
        pq.write_table(table, device)  # given a path, Arrow would remove the device


def test_an_episode_has_its_name_once_all_of_it_is_on_the_disk(monkeypatch, write_episode, tmp_path):
    flushed: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.add(os.fstat(descriptor).st_ino))
    needed: list[int] = []

    def check_and_rename(folder: Path, target: Path) -> None:
        needed.extend(entry.stat().st_ino for entry in (folder, *folder.rglob("*")))
        assert flushed.issuperset(needed)
        os.rename(folder, target)

    monkeypatch.setattr(Path, "rename", check_and_rename)
    path = write_episode("e1", logs=[{"time": 0, "pod": "p", "container": "c", "message": "m"}])
    assert len(needed) > len(list((path / "telemetry").iterdir()))
    assert path.parent.stat().st_ino in flushed


def test_other_errors_of_the_disk_keep_their_traceback(monkeypatch, write_episode, tmp_path):
    def broken(*arguments, **options):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output"):
        write_episode("e1")
    assert list((tmp_path / "episodes").iterdir()) == []


def test_metrics_are_sorted_by_series_then_time_across_batches(tmp_path, write_episode, sample):
    rows = [
        sample(metric, at, at, service=service, container=container)
        for at in (3, 1, 2)
        for metric in ("b", "a")
        for service in ("geo", "front")
        for container in ("z", None)
    ]
    path = write_episode("e1", metrics=rows)
    table = pq.read_table(path / "telemetry" / "metrics.parquet")
    keys = [
        (row["metric"], row["service"], row["pod"], row["container"] or "", row["time"]) for row in table.to_pylist()
    ]
    assert keys == sorted(keys)
    assert len(keys) == len(rows)


def test_batches_with_dictionaries_of_their_own_become_one_table(tmp_path, write_episode, rows_of, log):
    write_episode("e0")
    batches = [rows_of("logs", [log(3, "late", pod="geo-b")]), rows_of("logs", [log(1, "early", pod="geo-a")])]
    encoded = [
        batch.set_column(
            batch.column_names.index("pod"), "pod", batch["pod"].combine_chunks().dictionary_encode()
        ).to_batches()[0]
        for batch in batches
    ]
    with EpisodeWriter(tmp_path, "e1") as writer:
        assert writer.write_table("logs", encoded).num_rows == 2
        written = pq.read_table(tmp_path / "episodes" / "e1.incomplete" / "telemetry" / "logs.parquet")
    assert written["pod"].to_pylist() == ["geo-a", "geo-b"]
    assert written["message"].to_pylist() == ["early", "late"]
    assert set(written["episode"].to_pylist()) == {"e1"}


def test_files_are_zstd_with_dictionaries_and_statistics(example_root):
    path = next((example_root / "episodes").iterdir()) / "telemetry" / "metrics.parquet"
    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert "RLE_DICTIONARY" in columns["metric"].encodings
    assert columns["time"].statistics.has_min_max
    assert columns["metric"].statistics.has_min_max


def test_the_stored_schema_names_plain_strings_and_keeps_the_meanings(example_root):
    path = next((example_root / "episodes").iterdir()) / "telemetry" / "spans.parquet"
    schema = pq.read_schema(path)
    assert schema.field("service").type == pa.string()
    assert schema.field("duration_ns").metadata[b"unit"] == b"ns"
    assert b"meaning" not in schema.field("service").metadata
    assert schema.names == TABLES["spans"].names


def test_a_batch_with_a_wrong_column_is_refused_by_name(tmp_path):
    table = pa.table({"text": ["a"]} | {name: ["x"] for name in TABLES["logs"].names[1:] if name != "message"})
    with EpisodeWriter(tmp_path, "e1") as writer:
        with pytest.raises(DataError, match=r"must have the columns .*message.* but has text"):
            writer.write_table("logs", [table])
        with pytest.raises(DataError, match='"log" is not a table'):
            writer.write_table("log", [])


def test_a_null_where_none_may_be_is_refused(tmp_path, rows_of, log):
    with EpisodeWriter(tmp_path, "e1") as writer, pytest.raises(DataError, match=r"logs\.message must not be null"):
        writer.write_table("logs", [rows_of("logs", [log(1, None)])])


def test_a_label_with_an_unknown_or_a_missing_field_is_refused(write_episode):
    with pytest.raises(DataError, match="unknown fields falut"):
        write_episode("e1", label={"falut": "x"})
    with pytest.raises(DataError, match=r"label\.verdict must not be null"):
        write_episode("e1", label={"verdict": None})


@pytest.mark.parametrize("name", ["", "../e1", "a/b", "e1.incomplete", ".e"])
def test_an_episode_id_cannot_leave_its_folder(tmp_path, name):
    with pytest.raises(DataError, match="must be at most 100 letters"):
        EpisodeWriter(tmp_path, name)
