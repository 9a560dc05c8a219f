"""What rows of a table may be, read a row group at a time or just written."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.datasets import validation
from faultset.datasets.format.context import read_context
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.validation import table_problems, written_rows_problems

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
    return list(table_problems(path, "metrics", context))


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
        "column labels should hold an object, it holds a list of 1"
    ]


def test_written_rows_outside_the_view_are_counted(context):
    found = list(written_rows_problems(metrics(context, [-1, 0, 100, 101]), "metrics", context))
    assert found == ["3 of 4 rows lie outside the view"]


def test_bytes_of_texts_count_every_row(context, monkeypatch):
    rows = metrics(context, range(10), pod="p" * 100)
    each = len("e1" + "geo" + "cpu" + "{}" + "gauge") + 100
    monkeypatch.setattr(validation, "_LARGEST_TEXT", 10 * each)
    assert list(written_rows_problems(rows, "metrics", context)) == []
    monkeypatch.setattr(validation, "_LARGEST_TEXT", 10 * each - 1)
    assert list(written_rows_problems(rows, "metrics", context)) == [
        f"its texts take more than {10 * each - 1:,} bytes"
    ]


def test_bytes_of_texts_with_nulls_and_several_words(context, monkeypatch):
    rows = pa.concat_tables([metrics(context, [0]), metrics(context, [1], pod="pp"), metrics(context, [2], pod="p")])
    each = len("e1" + "geo" + "cpu" + "{}" + "gauge")
    monkeypatch.setattr(validation, "_LARGEST_TEXT", 3 * each + 3)
    assert list(written_rows_problems(rows.unify_dictionaries(), "metrics", context)) == []
    monkeypatch.setattr(validation, "_LARGEST_TEXT", 3 * each + 2)
    assert len(list(written_rows_problems(rows.unify_dictionaries(), "metrics", context))) == 1
