"""Write the tables of an episode, or of a chunk of a recording, into a folder that appears atomically."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.files import canonical_json, flush, write_text
from faultset.core.printable import first_line
from faultset.datasets.format.context import CONTEXT_FILE, EpisodeContext
from faultset.datasets.format.schemas import (
    EVIDENCE,
    LABEL,
    LABEL_JSON_FIELDS,
    TABLES,
    TRUTH_NAMES,
    AddedTable,
    check_episode_id,
    without_episode,
)
from faultset.datasets.format.storage import (
    QUICK,
    QUICKEST,
    SMALL,
    SMALLEST,
    Compression,
    in_one_chunk,
    order_of,
    translate_disk_full,
    write_parquet,
)

TELEMETRY = "telemetry"
TRUTH = "truth"
INCOMPLETE = ".incomplete"
JOURNAL_FILE = f"{TRUTH}/journal.jsonl"
"""Record of the changes to the platform; path below an episode's folder."""


def table_file(table: str) -> str:
    """Return the path of a table below the folder of its episode."""
    return f"{TRUTH if table in TRUTH_NAMES else TELEMETRY}/{table}.parquet"


class TableFolderWriter:
    """Write tables into `<name>.incomplete`; `commit` renames the folder.

    Use it as a context manager. Leaving the block without `commit` removes the folder. `unit` is the id of the episode
    or recording, the content of the first column of each table.
    """

    required: ClassVar[tuple[str, ...]] = ()
    """Files and folders that must be written before the commit."""

    def __init__(
        self,
        parent: Path,
        name: str,
        *,
        unit: str,
        schemas: Mapping[str, pa.Schema],
        quick: bool = False,
        smallest: bool = False,
    ) -> None:
        self._unit, self._schemas = unit, dict(schemas)
        self._quick, self._smallest = quick, smallest
        self._parent, self._final, self._folder = parent, parent / name, parent / (name + INCOMPLETE)
        self._written: set[str] = set()
        self.rows: dict[str, int] = {}
        self._open = False

    @property
    def title(self) -> str:
        """Name of the episode or chunk, for messages."""
        return f"episode {self._unit}"

    def __enter__(self) -> Self:
        if self._final.exists():
            raise DataError(self._exists())
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
        rows = _add_episode(_concatenate(table, schema, batches), schema, self._unit)
        order = order_of(table, rows)
        if order is not None:
            rows = rows.take(pa.array(order))
        with self._writing():
            path = self._folder / table_file(table)
            write_parquet(path, rows, compression=self._compression(table))
        self._written.add(table)
        self.rows[table_file(table)] = len(rows)
        return rows

    def write_missing_tables(self) -> None:
        """Write unwritten tables as empty files: all episodes, and all chunks of a recording, have the same files."""
        for table in self._schemas.keys() - self._written:
            self.write_table(table, ())

    def commit(self) -> Path:
        """Write missing tables empty, flush everything to disk, and rename and return the folder."""
        missing = sorted({*self.required} - self._written)
        if missing:
            raise DataError(f"{self.title} lacks {' and '.join(missing)}; write them before the commit")
        self.write_missing_tables()
        with self._writing():
            for folder in (self._folder / TELEMETRY, self._folder / TRUTH, self._folder):
                flush(folder)
            if self._final.exists():
                raise DataError(self._exists())
            self._folder.rename(self._final)
            self._open = False
            flush(self._parent)
        return self._final

    def write_text(self, name: str, text: str) -> None:
        """Write a text file."""
        with self._writing():
            write_text(self._folder / name, text)
        self._written.add(name)

    def write_truth_table(
        self, name: str, schema: pa.Schema, rows: Sequence[Mapping[str, Any]], json_fields: Collection[str] = ()
    ) -> None:
        """Write one truth table; missing fields become null, and JSON fields may be mappings.

        Times are UTC nanoseconds or aware datetimes.
        """
        table = build_truth_table(name, schema, rows, json_fields, unit=self._unit, title=self.title)
        with self._writing():
            compression = SMALLEST if self._smallest else QUICKEST if self._quick else SMALL
            write_parquet(self._folder / table_file(name), table, compression=compression)
        self.rows[table_file(name)] = len(table)

    def _exists(self) -> str:
        return f"{self.title} already exists in {self._parent} and is never overwritten; choose another id"

    def _compression(self, table: str) -> Compression:
        if not self._quick:
            return SMALLEST if self._smallest else SMALL
        return QUICKEST if table == "metrics" else QUICK

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Refuse to write with a closed writer; if a write fails, delete the folder to free disk space."""
        if not self._open:
            raise DataError(f"the writer of {self.title} is closed; create another one")
        with translate_disk_full(self._parent):
            try:
                yield
            except OSError:
                self._discard()
                raise

    def _discard(self) -> None:
        self._open = False
        shutil.rmtree(self._folder, ignore_errors=True)


def build_truth_table(
    name: str,
    schema: pa.Schema,
    rows: Iterable[Mapping[str, Any]],
    json_fields: Collection[str] = (),
    *,
    unit: str,
    title: str,
) -> pa.Table:
    """Return the rows of a truth table of an episode or recording; `title` names it in errors."""
    encoded = [_encode_json(row, json_fields) for row in rows]
    unknown = sorted({field for row in encoded for field in row} - set(schema.names))
    if unknown:
        raise DataError(f"{name} of {title} has unknown fields {', '.join(unknown)}; remove them")
    table = pa.Table.from_pylist([{**row, "episode": unit} for row in encoded], schema=schema)
    _refuse_nulls(name, table)
    return table


def _encode_json(row: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Return a row with its JSON fields, and the parameters of its faults, as text."""
    encoded: dict[str, Any] = {
        name: canonical_json(value) if name in fields and not isinstance(value, str) else value
        for name, value in row.items()
    }
    if encoded.get("faults"):
        encoded["faults"] = [
            {**fault, "parameters": canonical_json(fault["parameters"])} for fault in encoded["faults"]
        ]
    return encoded


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
        # importers pass external text on without decoding it, so it may not be UTF-8
        conformed.validate(full=True)
    except pa.ArrowInvalid as error:
        reason = first_line(error)
        raise DataError(
            f"a batch for table {table} is damaged ({reason}); restore the file it was read from"
        ) from error
    _refuse_nulls(table, conformed)
    return conformed


def _refuse_nulls(table: str, rows: pa.Table) -> None:
    for field in rows.schema:
        if not field.nullable and rows[field.name].null_count:
            raise DataError(f"{table}.{field.name} must not be null, but is in {rows[field.name].null_count} rows")


def _add_episode(rows: pa.Table, schema: pa.Schema, episode: str) -> pa.Table:
    codes = pa.array(np.zeros(len(rows), dtype=np.int32))
    column = pa.DictionaryArray.from_arrays(codes, pa.array([episode]), safe=False)
    return pa.Table.from_arrays([column, *rows.columns], schema=schema)


WRITTEN = "written"
"""Name of the journal note that holds the digest."""


def run_digest(times: Mapping[str, pa.ChunkedArray], *, view_start_ns: int, inject_start_ns: int | None) -> str:
    """Return a digest of each table's row count and first and last times, which distinguishes runs of the same plan."""
    spans = {table: _summarize_times(column) for table, column in times.items()}
    facts = {"tables": spans, "view_start_ns": view_start_ns, "inject_start_ns": inject_start_ns}
    return hashlib.sha256(canonical_json(facts).encode()).hexdigest()


def _summarize_times(column: pa.ChunkedArray) -> list[int | None]:
    stamps = column.cast(pa.int64()).to_numpy()
    return [len(stamps), int(stamps.min()), int(stamps.max())] if len(stamps) else [0, None, None]


EPISODES = "episodes"


class EpisodeWriter(TableFolderWriter):
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
        Write faster; the files are slightly larger.
    smallest
        Write the smallest files, which takes longer.
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
        schemas = TABLES | {table.name: table.schema for table in added_tables}
        parent = Path(dataset_root) / EPISODES
        super().__init__(parent, episode_id, unit=episode_id, schemas=schemas, quick=quick, smallest=smallest)

    required = (CONTEXT_FILE, TRUTH)

    def write_context(self, context: EpisodeContext) -> None:
        """Write the facts that methods may use."""
        if context.episode != self._unit:
            raise DataError(f"the context must belong to {self.title}, but belongs to {context.episode}")
        if context.tables.keys() != self._schemas.keys():
            raise DataError(
                f"the context of {self.title} must declare the writer's tables ({', '.join(self._schemas)}), but "
                f"declares {', '.join(context.tables)}"
            )
        self.write_text(CONTEXT_FILE, context.to_json())

    def write_truth(
        self, label: Mapping[str, Any], evidence: Sequence[Mapping[str, Any]], journal: Path | None
    ) -> None:
        """Write the label and the evidence, and copy the journal.

        Missing fields become null. Times are UTC nanoseconds or aware datetimes; JSON fields may be mappings.
        """
        self.write_truth_table("label", LABEL, [label], LABEL_JSON_FIELDS)
        self.write_truth_table("evidence", EVIDENCE, evidence)
        self.write_text(JOURNAL_FILE, "" if journal is None else Path(journal).read_text(encoding="utf-8"))
        self._written.add(TRUTH)
