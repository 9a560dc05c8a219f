"""Write an episode as a folder that appears atomically."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.files import flush, write_text
from faultset.core.json_text import canonical_json
from faultset.datasets.format.context import CONTEXT_FILE, EpisodeContext
from faultset.datasets.format.schemas import (
    EVIDENCE,
    LABEL,
    LABEL_JSON_FIELDS,
    TABLES,
    TRUTH_TABLES,
    AddedTable,
    check_episode_id,
    time_column,
    without_episode,
)
from faultset.datasets.format.storage import (
    QUICK,
    QUICKEST,
    SMALL,
    SMALLEST,
    Compression,
    translate_disk_full,
    write_parquet,
)

WRITTEN = "written"
"""Name of the journal's note with the digest."""


def run_digest(times: Mapping[str, pa.ChunkedArray], *, view_start_ns: int, inject_start_ns: int | None) -> str:
    """Return a digest of each table's row count, first and last time, which distinguishes runs of one plan.

    Parameters
    ----------
    times
        Time column of each table.
    inject_start_ns
        Time of the injection; None without a fault.
    """
    spans = {table: _span(column) for table, column in times.items()}
    facts = {"tables": spans, "view_start_ns": view_start_ns, "inject_start_ns": inject_start_ns}
    return hashlib.sha256(canonical_json(facts).encode()).hexdigest()


def _span(column: pa.ChunkedArray) -> list[int | None]:
    stamps = column.cast(pa.int64()).to_numpy()
    return [len(stamps), int(stamps.min()), int(stamps.max())] if len(stamps) else [0, None, None]


SERIES_COLUMNS = ("metric", "service", "pod", "container", "labels")
"""Columns that identify a metric series, in sort order."""
_LARGEST = np.iinfo(np.int64).max


def order_of(table: str, rows: pa.Table) -> np.ndarray | None:
    """Return the row indices that sort a table as it is stored; None if it is sorted."""
    return _series_order(rows) if table == "metrics" else _time_order(rows, time_column(table))


def in_one_chunk(table: pa.Table) -> pa.Table:
    """Return a table with one chunk, and thus one dictionary, per column."""
    if all(column.num_chunks == 1 for column in table.columns):
        return table
    return table.unify_dictionaries().combine_chunks()


def _series_order(rows: pa.Table) -> np.ndarray | None:
    """Return the row indices that sort by series and time; None if the rows are sorted."""
    times = rows["time"].cast(pa.int64()).to_numpy()
    if _in_series_order(rows, times):
        return None
    series = np.zeros(len(rows), dtype=np.int64)
    for name in SERIES_COLUMNS:
        ranks = _ranks(rows[name])
        size = int(ranks.max(initial=0)) + 1
        if int(series.max(initial=0)) + 1 > _LARGEST // size:
            # There are too many possible combinations for int64; renumber the existing ones.
            series = np.unique(series, return_inverse=True)[1].astype(np.int64)
        series = series * size + ranks
    return np.lexsort([times, series])


def _in_series_order(rows: pa.Table, times: np.ndarray) -> bool:
    """Return whether the rows are sorted by series and time; compares names only at the first row of each series."""
    if not len(rows):
        return True
    change = np.zeros(len(rows), dtype=bool)
    change[0] = True
    codes = []
    for name in SERIES_COLUMNS:
        array = as_array(rows[name])
        code = array.indices.fill_null(-1) if array.null_count else array.indices
        codes.append((code.to_numpy(zero_copy_only=False), array.dictionary))
        if len(array.dictionary) > 1 or array.null_count not in (0, len(array)):
            change[1:] |= codes[-1][0][1:] != codes[-1][0][:-1]
    if np.any((times[1:] < times[:-1]) & ~change[1:]):
        return False
    starts = np.flatnonzero(change)
    if len(starts) > len(rows) // 4 + 1:
        return False
    heads = []
    for code, dictionary in codes:
        words = ["", *dictionary.to_pylist()]
        # nulls sort before empty strings
        heads.append([(number >= 0, words[number + 1]) for number in code[starts].tolist()])
    keys = list(zip(*heads, strict=True))
    return all(first < second for first, second in pairwise(keys))


def as_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; copied only if it has several chunks."""
    if column.num_chunks == 1:
        return column.chunk(0)
    array = column.combine_chunks()
    return array.chunk(0) if isinstance(array, pa.ChunkedArray) else array


def _time_order(rows: pa.Table, column: str) -> np.ndarray | None:
    times = rows[column].cast(pa.int64()).to_numpy()
    return None if np.all(times[1:] >= times[:-1]) else np.argsort(times, kind="stable")


def _ranks(column: pa.ChunkedArray) -> np.ndarray:
    """Return integers that sort like the strings of a column; nulls first."""
    if not len(column):
        return np.zeros(0, dtype=np.int32)
    array = as_array(column)
    if len(array.dictionary) < 2 and array.null_count in (0, len(array)):
        return np.zeros(len(array), dtype=np.int32)
    words = np.asarray(array.dictionary.to_pylist(), dtype=object)
    ranks = np.empty(len(words), dtype=np.int32)
    ranks[np.argsort(words)] = np.arange(1, len(words) + 1, dtype=np.int32)
    codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.where(codes < 0, 0, ranks[codes]) if len(words) else np.zeros(len(codes), dtype=np.int32)


EPISODES = "episodes"
TELEMETRY = "telemetry"
TRUTH = "truth"
INCOMPLETE = ".incomplete"
JOURNAL_FILE = f"{TRUTH}/journal.jsonl"
"""Record of the changes to the platform; path below an episode's folder."""


def table_file(table: str) -> str:
    """Return the path of a table below the folder of its episode."""
    return f"{TRUTH if table in TRUTH_TABLES else TELEMETRY}/{table}.parquet"


class EpisodeWriter:
    """Write one episode into `DATASET/episodes/<id>`.

    Use it as a context manager. Files are written to `<id>.incomplete`; `commit` turns it into an episode. Leaving the
    block without `commit` removes the folder.

    Parameters
    ----------
    dataset_root
        Dataset folder; created if missing.
    episode_id
        Opaque name: letters, digits and `-`.
    quick
        Write faster; files are slightly larger.
    smallest
        Write slower; files are smaller.
    added_tables
        Tables in addition to the standard ones; the context must declare them as well.
    """

    def __init__(
        self,
        dataset_root: Path | str,
        episode_id: str,
        *,
        quick: bool = False,
        smallest: bool = False,
        added_tables: Sequence[AddedTable] = (),
    ) -> None:
        check_episode_id(episode_id)
        self._id = episode_id
        self._quick, self._smallest = quick, smallest
        self._schemas = TABLES | {table.name: table.schema for table in added_tables}
        self._parent = Path(dataset_root) / EPISODES
        self._final = self._parent / episode_id
        self._folder = self._parent / (episode_id + INCOMPLETE)
        self._written: set[str] = set()
        self.rows: dict[str, int] = {}
        self._open = False

    def __enter__(self) -> Self:
        if self._final.exists():
            raise DataError(_exists(self._id, self._parent))
        with translate_disk_full(self._parent):
            shutil.rmtree(self._folder, ignore_errors=True)
            for name in (TELEMETRY, TRUTH):
                (self._folder / name).mkdir(parents=True)
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self._discard()

    @property
    def folder(self) -> Path:
        """Folder of the files until they are committed."""
        return self._folder

    def write_table(self, table: str, batches: Iterable[pa.RecordBatch | pa.Table]) -> pa.Table:
        """Sort and write one telemetry table without its `episode` column; return the written table."""
        if table not in self._schemas:
            raise DataError(f'"{table}" is not a table; choose one of {", ".join(self._schemas)}')
        schema = self._schemas[table]
        rows = _with_episode(_concatenate(table, schema, batches), schema, self._id)
        order = order_of(table, rows)
        if order is not None:
            rows = rows.take(pa.array(order))
        with _Guard(self):
            path = self._folder / table_file(table)
            write_parquet(path, rows, compression=self._compression(table))
        self._written.add(table)
        self.rows[table_file(table)] = len(rows)
        return rows

    def write_context(self, context: EpisodeContext) -> None:
        """Write the facts that methods may use."""
        if context.episode != self._id:
            raise DataError(f"the context must be of episode {self._id}, but is of {context.episode}")
        if context.tables.keys() != self._schemas.keys():
            raise DataError(
                f"the context of episode {self._id} must declare the writer's tables ({', '.join(self._schemas)}), but "
                f"declares {', '.join(context.tables)}"
            )
        with _Guard(self):
            write_text(self._folder / CONTEXT_FILE, context.to_json())
        self._written.add(CONTEXT_FILE)

    def write_truth(
        self, label: Mapping[str, Any], evidence: Sequence[Mapping[str, Any]], journal: Path | None
    ) -> None:
        """Write label and evidence, and copy the journal.

        Missing fields become null. Times are UTC nanoseconds or aware datetimes; JSON fields may be mappings.
        """
        label = {
            name: canonical_json(value) if name in LABEL_JSON_FIELDS and not isinstance(value, str) else value
            for name, value in label.items()
        }
        if label.get("faults"):
            label["faults"] = [
                {**fault, "parameters": canonical_json(fault["parameters"])} for fault in label["faults"]
            ]
        with _Guard(self):
            compression = SMALLEST if self._smallest else QUICKEST if self._quick else SMALL
            for name, schema, rows in (("label", LABEL, [label]), ("evidence", EVIDENCE, evidence)):
                table = self._truth_table(name, schema, rows)
                write_parquet(self._folder / table_file(name), table, compression=compression)
                self.rows[table_file(name)] = len(table)
            text = "" if journal is None else Path(journal).read_text(encoding="utf-8")
            write_text(self._folder / JOURNAL_FILE, text)
        self._written.add(TRUTH)

    def write_missing_tables(self) -> None:
        """Write empty files for missing tables, so that every episode has the same files."""
        for table in self._schemas.keys() - self._written:
            self.write_table(table, ())

    def commit(self) -> Path:
        """Write empty files for missing tables, flush everything to disk, and rename and return the folder."""
        missing = sorted({CONTEXT_FILE, TRUTH} - self._written)
        if missing:
            raise DataError(f"episode {self._id} lacks {' and '.join(missing)}; write them before the commit")
        self.write_missing_tables()
        with _Guard(self):
            for folder in (self._folder / TELEMETRY, self._folder / TRUTH, self._folder):
                flush(folder)
            if self._final.exists():
                raise DataError(_exists(self._id, self._parent))
            self._folder.rename(self._final)
            self._open = False
            flush(self._parent)
        return self._final

    def _truth_table(self, name: str, schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        unknown = sorted({field for row in rows for field in row} - set(schema.names))
        if unknown:
            raise DataError(f"{name} of episode {self._id} has unknown fields {', '.join(unknown)}; remove them")
        table = pa.Table.from_pylist([{**row, "episode": self._id} for row in rows], schema=schema)
        _refuse_nulls(name, table)
        return table

    def _compression(self, table: str) -> Compression:
        if not self._quick:
            return SMALLEST if self._smallest else SMALL
        return QUICKEST if table == "metrics" else QUICK

    def _discard(self) -> None:
        self._open = False
        shutil.rmtree(self._folder, ignore_errors=True)


class _Guard:
    """Refuse writes of a closed writer; if a write fails, delete the folder to free disk space."""

    def __init__(self, writer: EpisodeWriter) -> None:
        self._writer = writer
        self._translation = translate_disk_full(writer._parent)

    def __enter__(self) -> None:
        if not self._writer._open:
            raise DataError(f"the writer of episode {self._writer._id} is closed; create another one")
        self._translation.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if isinstance(error, OSError):
            self._writer._discard()
        return self._translation.__exit__(kind, error, trace)


def _exists(episode: str, folder: Path) -> str:
    return f"episode {episode} exists in {folder} and is never overwritten; choose another id"


def _concatenate(table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch | pa.Table]) -> pa.Table:
    """Concatenate batches of any string encoding into a table of the schema with unified dictionaries."""
    expected = without_episode(schema)
    tables = [_conform(table, expected, batch) for batch in batches]
    if not tables:
        return expected.empty_table()
    return in_one_chunk(pa.concat_tables(tables))


def _conform(table: str, expected: pa.Schema, batch: pa.RecordBatch | pa.Table) -> pa.Table:
    rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    if "episode" in rows.column_names:
        rows = rows.drop_columns(["episode"])
    if set(rows.column_names) != set(expected.names):
        raise DataError(
            f"a batch for table {table} must have the columns {', '.join(expected.names)}, but has "
            f"{', '.join(rows.column_names)}"
        )
    columns = []
    for field in expected:
        column = rows[field.name]
        if column.type != field.type:
            if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type):
                column = column.cast(pa.string()).dictionary_encode()
            column = column.cast(field.type)
        columns.append(column)
    conformed = pa.Table.from_arrays(columns, schema=expected)
    try:
        # readers return external text without decoding it, so it may not be UTF-8
        conformed.validate(full=True)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0][:160]
        raise DataError(
            f"a batch for table {table} is damaged ({reason}); restore the file it was read from"
        ) from error
    _refuse_nulls(table, conformed)
    return conformed


def _refuse_nulls(table: str, rows: pa.Table) -> None:
    for field in rows.schema:
        if not field.nullable and rows[field.name].null_count:
            raise DataError(f"{table}.{field.name} must not be null, but is in {rows[field.name].null_count} rows")


def _with_episode(rows: pa.Table, schema: pa.Schema, episode: str) -> pa.Table:
    codes = pa.array(np.zeros(len(rows), dtype=np.int32))
    column = pa.DictionaryArray.from_arrays(codes, pa.array([episode]), safe=False)
    return pa.Table.from_arrays([column, *rows.columns], schema=schema)
