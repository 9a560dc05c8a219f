"""Read telemetry tables of an episode or of a chunk of a recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from faultset.core.errors import unknown_name
from faultset.core.files import parquet_path
from faultset.datasets.format.episodes import table_file
from faultset.datasets.format.schemas import TABLES, dictionary_columns
from faultset.datasets.format.storage import open_table, translate_damage
from faultset.datasets.metrics.roles import Catalogue

Filters = pc.Expression | list[Any] | None
"""Conditions as for `pyarrow.parquet.read_table`; None for all rows."""
_WIDE_COLUMNS = ["time", "service", "pod", "container", "metric", "labels", "kind", "value"]
_PIECE_ROWS = 1 << 15
"""Number of rows that can be read in a fraction of a millisecond."""


def schema_of(name: str, schemas: dict[str, pa.Schema]) -> pa.Schema:
    """Return the schema of a table; raise UsageError if there is no such table."""
    if name not in schemas:
        raise unknown_name("table", name, schemas)
    return schemas[name]


def read_columns(
    folder: Path, name: str, schema: pa.Schema, columns: Sequence[str] | None, filters: Filters = None
) -> pa.Table:
    """Read one table of an episode or chunk; `EpisodeView.table` describes the parameters."""
    for column in columns or ():
        if column not in schema.names:
            raise unknown_name(f"column of table {name}", column, schema.names)
    path = folder / table_file(name)
    chosen = list(columns) if columns is not None else schema.names
    dictionaries = [column for column in dictionary_columns(schema) if filters is not None or column in chosen]
    if filters is None:
        file = open_table(path, name, schema, dictionaries)
        with translate_damage(path), file:
            return file.read(columns=chosen).select(chosen)
    open_table(path, name, schema).close()
    with translate_damage(path):
        return pq.read_table(parquet_path(path), columns=chosen, filters=filters, read_dictionary=dictionaries)


def read_pieces(
    folder: Path, name: str, schema: pa.Schema, columns: Sequence[str]
) -> Iterator[tuple[pa.ChunkedArray, ...]]:
    """Yield columns of a table in pieces, for readers that may stop early."""
    path = folder / table_file(name)
    file = open_table(path, name, schema, [column for column in dictionary_columns(schema) if column in columns])
    with translate_damage(path), file:
        for batch in file.iter_batches(_PIECE_ROWS, columns=list(columns), use_threads=False):
            piece = pa.Table.from_batches([batch])
            yield tuple(piece[column] for column in columns)


def read_samples(folder: Path, roles: frozenset[str] | None, catalogue: Catalogue) -> pa.Table:
    """Read the samples from which wide columns of the roles are computed; histogram buckets are never used."""
    path = folder / table_file("metrics")
    file = open_table(path, "metrics", TABLES["metrics"], dictionary_columns(TABLES["metrics"]))
    with translate_damage(path), file:
        metric = file.read(columns=["metric"])["metric"].unify_dictionaries()
        masks, groups = [], []
        first = 0
        names = metric.chunk(0).dictionary.to_pylist() if metric.num_chunks else []
        useful = np.array([_is_useful(name, roles, catalogue) for name in names], dtype=bool)
        codes = metric.combine_chunks().indices.to_numpy() if len(metric) else np.zeros(0, dtype=int)
        keep = useful[codes] if len(names) else np.zeros(0, dtype=bool)
        for group in range(file.num_row_groups):
            last = first + file.metadata.row_group(group).num_rows
            if keep[first:last].any():
                groups.append(group)
                masks.append(keep[first:last])
            first = last
        rows = file.read_row_groups(groups, columns=_WIDE_COLUMNS)
    if not groups or all(mask.all() for mask in masks):
        return rows
    return rows.filter(pa.array(np.concatenate(masks)))


def _is_useful(metric: str, roles: frozenset[str] | None, catalogue: Catalogue) -> bool:
    metric_roles = catalogue.stored_roles(metric)
    return bool(metric_roles) if roles is None else bool(metric_roles & roles)
