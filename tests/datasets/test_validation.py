"""Files of a version are read once, and what has changed since is found all the same."""

from __future__ import annotations

import json
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.core.errors import DataError
from faultset.datasets import validation
from faultset.datasets.cache import FOLDER
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.context import read_context
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.format.versions import create_version
from faultset.datasets.validation import table_problems, written_rows_problems


@pytest.fixture
def hashed(monkeypatch):
    seen = []
    real = validation.compute_sha256
    monkeypatch.setattr(validation, "compute_sha256", lambda path: seen.append(path) or real(path))
    return seen


@pytest.fixture
def checked(monkeypatch):
    seen = []
    real = validation.check_content
    monkeypatch.setattr(validation, "check_content", lambda *given: seen.append(given) or real(*given))
    return seen


def test_nothing_is_read_after_the_first_time(example_copy, hashed, checked):
    dataset = open_dataset(example_copy)
    dataset.check_files(2)
    del hashed[:], checked[:]
    dataset.check_files(2)
    assert (hashed, checked) == ([], [])


def test_what_made_a_version_need_not_be_hashed_for_it_again(write_episode, hashed):
    root = write_episode("e1").parents[1]
    create_version(root, provenance={})
    open_dataset(root).check_files(2)
    assert hashed == []


def test_a_version_that_lists_less_of_a_checked_episode_is_refused(example_copy):
    dataset = open_dataset(example_copy)
    dataset.check_files(2)
    episode, files = next(iter(dataset.files.items()))
    dataset.files[episode] = {name: record for name, record in files.items() if not name.endswith("logs.parquet")}
    with pytest.raises(DataError, match=r"the version does not list telemetry/logs\.parquet"):
        dataset.check_files(2)


def test_a_file_of_the_same_size_and_time_with_other_bytes_is_found(example_copy):
    dataset = open_dataset(example_copy)
    dataset.check_files(2)
    path = dataset.path(dataset.episodes[0]) / "telemetry" / "metrics.parquet"
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(DataError, match=r"metrics\.parquet has changed since the version was created"):
        dataset.check_files(2)


def test_what_comes_with_a_copy_of_a_dataset_is_not_believed(example_copy, tmp_path, hashed):
    open_dataset(example_copy).check_files(2)
    copy = tmp_path / "shipped"
    shutil.copytree(example_copy, copy, copy_function=shutil.copy2)
    assert (copy / FOLDER / "content.json").is_file()
    del hashed[:]
    dataset = open_dataset(copy)
    dataset.check_files(2)
    assert len(hashed) == sum(len(files) for files in dataset.files.values())


@pytest.mark.parametrize("content", ['{"a": [1]}', "[" * 100_000, "\xff", '{"a": [1, 2, 3, 4, 5, 6]}'])
def test_a_damaged_list_of_what_was_seen_is_made_again(example_copy, hashed, content):
    dataset = open_dataset(example_copy)
    dataset.check_files(2)
    del hashed[:]
    (example_copy / FOLDER / "content.json").write_text(content, encoding="latin-1")
    dataset.check_files(2)
    assert len(hashed) == sum(len(files) for files in dataset.files.values())
    assert json.loads((example_copy / FOLDER / "content.json").read_text())


def test_a_cache_that_is_a_link_is_neither_read_nor_written(example_copy, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (example_copy / FOLDER).rename(tmp_path / "away")
    (example_copy / FOLDER).symlink_to(elsewhere)
    open_dataset(example_copy).check_files(2)
    assert list(elsewhere.iterdir()) == []


def test_progress_counts_episodes(example_copy):
    told = []
    open_dataset(example_copy).check_files(2, lambda finished, total: told.append((finished, total)))
    assert told == [(number, 4) for number in range(5)]


def test_a_row_group_without_rows_is_no_damage(write_episode):
    file = write_episode("e1") / "telemetry" / "metrics.parquet"
    rows = pq.read_table(file)
    with pq.ParquetWriter(file, rows.schema) as writer:
        for part in (rows.slice(0, 0), rows, rows.slice(0, 0)):
            writer.write_table(part)
    assert pq.read_metadata(file).num_row_groups == 3
    validation.check_content(file.parents[1], "e1")


METRIC = {"service": "geo", "metric": "cpu", "labels": "{}", "kind": "gauge", "value": 1.0}
SECOND = 10**9


@pytest.fixture
def episode(write_episode):
    return write_episode("e1")


@pytest.fixture
def context(episode):
    return read_context(episode)


def metrics(context, seconds, **other) -> pa.Table:
    start = context.view_start_ns
    rows = [{"episode": "e1", "time": start + round(at * SECOND), **METRIC, **other} for at in seconds]
    return pa.Table.from_pylist(rows, schema=TABLES["metrics"])


def file_problems(episode, context, *groups: pa.Table) -> list[str]:
    path = episode / "telemetry" / "metrics.parquet"
    with pq.ParquetWriter(path, TABLES["metrics"]) as writer:
        for group in groups:
            writer.write_table(group)
    return [problem for _, problem in table_problems(path, "metrics", context)]


def test_rows_in_order_have_no_problem_across_row_groups(episode, context):
    assert file_problems(episode, context, metrics(context, [0, 1]), metrics(context, [2, 3])) == []


def test_a_row_group_that_begins_before_the_end_of_the_one_before_is_unsorted(episode, context):
    found = file_problems(episode, context, metrics(context, [0, 5]), metrics(context, [4, 6]))
    assert found == ["its rows are not sorted by series and time"]


def test_rows_of_another_episode_are_named(episode, context):
    others = metrics(context, [2]).set_column(
        0, TABLES["metrics"].field("episode"), pa.array(["e2"]).dictionary_encode()
    )
    assert file_problems(episode, context, metrics(context, [0]), others) == ['has rows of another episode ("e2")']


def test_words_of_a_dictionary_that_no_row_has_are_no_problem(context):
    labels = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), pa.array(["{}", "no JSON"]))
    rows = metrics(context, [0, 1])
    place = rows.schema.get_field_index("labels")
    assert (
        list(written_rows_problems(rows.set_column(place, rows.schema.field(place), labels), "metrics", context)) == []
    )


def test_labels_that_are_no_object_are_a_problem(context):
    rows = metrics(context, [0, 1], labels="[1]")
    assert list(written_rows_problems(rows, "metrics", context)) == [
        "column labels must hold an object, but holds a list of 1"
    ]


def test_written_rows_outside_the_view_are_counted(context):
    found = list(written_rows_problems(metrics(context, [-1, 0, 100, 101]), "metrics", context))
    assert found == ["3 of 4 rows are outside the view"]


def test_bytes_of_texts_count_every_row(context, monkeypatch):
    rows = metrics(context, range(10), pod="p" * 100)
    each = len("e1" + "geo" + "cpu" + "{}" + "gauge") + 100
    monkeypatch.setattr(validation, "_MAX_TEXT_BYTES", 10 * each)
    assert list(written_rows_problems(rows, "metrics", context)) == []
    monkeypatch.setattr(validation, "_MAX_TEXT_BYTES", 10 * each - 1)
    assert list(written_rows_problems(rows, "metrics", context)) == [
        f"its texts take more than {10 * each - 1:,} bytes"
    ]


def test_bytes_of_texts_with_nulls_and_several_words(context, monkeypatch):
    rows = pa.concat_tables([metrics(context, [0]), metrics(context, [1], pod="pp"), metrics(context, [2], pod="p")])
    each = len("e1" + "geo" + "cpu" + "{}" + "gauge")
    monkeypatch.setattr(validation, "_MAX_TEXT_BYTES", 3 * each + 3)
    assert list(written_rows_problems(rows.unify_dictionaries(), "metrics", context)) == []
    monkeypatch.setattr(validation, "_MAX_TEXT_BYTES", 3 * each + 2)
    assert len(list(written_rows_problems(rows.unify_dictionaries(), "metrics", context))) == 1
