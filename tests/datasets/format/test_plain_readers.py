"""A dataset is read without this package's code by what people use."""

from __future__ import annotations

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from faultset.datasets import open_dataset
from faultset.datasets.examples import START_NS
from faultset.datasets.format.schemas import TABLES, TRUTH_TABLES, stored_schema, time_column


@pytest.fixture
def files(example_root):
    def of(table: str) -> list[str]:
        return sorted(str(path) for path in (example_root / "episodes").glob(f"*/*/{table}.parquet"))

    return of


@pytest.fixture
def rows(example_root):
    dataset = open_dataset(example_root)
    return {
        table: sum(
            record.rows or 0 for files in dataset.files.values() for path, record in files.items() if table in path
        )
        for table in TABLES
    }


@pytest.mark.parametrize("table", [*TABLES, *TRUTH_TABLES])
def test_pyarrow_reads_every_table_with_its_schema(files, table):
    wanted = stored_schema((TABLES | TRUTH_TABLES)[table])
    for file in files(table):
        found = pq.read_schema(file)
        assert found.names == wanted.names
        scalars = [field for field in wanted if not pa.types.is_list(field.type)]
        assert {field.name: field.type for field in scalars} == {
            field.name: found.field(field.name).type for field in scalars
        }


def test_pyarrow_reads_all_episodes_as_one_dataset(files, rows):
    for table in TABLES:
        assert pyarrow.dataset.dataset(files(table)).count_rows() == rows[table]


def test_pandas_reads_strings_and_times(files):
    frame = pd.read_parquet(files("logs")[0])
    assert str(frame["time"].dtype) == "datetime64[ns, UTC]"
    assert pd.api.types.is_string_dtype(frame["message"])
    assert frame["service"].iloc[0] in {"frontend", "search", "geo", "rate", "profile", "recommendation"}


# dask itself calls a pandas function in a way that pandas announces to remove.
@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_dask_reads_all_episodes_as_one_frame(files, rows):
    import dask.dataframe as dd

    frame = dd.read_parquet(files("metrics"))
    counts = frame.groupby("metric")["value"].count().compute(scheduler="synchronous")
    assert counts.sum() == rows["metrics"]
    assert "up" in counts.index


def test_duckdb_queries_all_episodes_by_glob(example_root, rows):
    with duckdb.connect() as connection:
        for table in TABLES:
            pattern = f"{example_root}/episodes/*/telemetry/{table}.parquet"
            query = f"select count(*), epoch_ns(min({time_column(table)})), count(distinct episode) from '{pattern}'"
            count, first, episodes = connection.sql(query).fetchall()[0]
            assert first >= START_NS
            assert count == rows[table]
            assert episodes == 4


def test_duckdb_joins_telemetry_with_the_truth(example_root):
    folder = f"{example_root}/episodes/*"
    query = f"""
        select label.fault, count(*) from '{folder}/telemetry/logs.parquet' as logs
        join '{folder}/truth/label.parquet' as label using (episode)
        where logs.level = 'error' group by 1 order by 1
    """
    with duckdb.connect() as connection:
        assert [fault for fault, _ in connection.sql(query).fetchall()] == ["cpu-hog", "slow-disk"]


def test_an_empty_table_has_a_schema_and_no_row_group(write_episode):
    file = write_episode("e1") / "telemetry" / "events.parquet"
    metadata = pq.read_metadata(file)
    assert (metadata.num_rows, metadata.num_row_groups) == (0, 0)
    assert pd.read_parquet(file).columns.tolist() == TABLES["events"].names
