"""Reading what really happened in an episode. Methods must not; a test holds the baselines to it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.printable import printable
from faultset.core.reading.documents import json_lines, parse_object
from faultset.core.reading.regular_files import read_regular
from faultset.datasets.format.episodes import JOURNAL_FILE, table_file
from faultset.datasets.format.labels import Label
from faultset.datasets.format.schemas import EVIDENCE, LABEL, LABEL_JSON_FIELDS
from faultset.datasets.format.storage import TRUTH_LIMITS, open_table, translate_damage

if TYPE_CHECKING:
    import pandas as pd


def read_label(episode_path: Path | str) -> Label:
    """Return what really happened in an episode; raise DataError when the file is missing or damaged."""
    path = Path(episode_path) / table_file("label")
    with open_table(path, "label", LABEL) as file, translate_damage(path):
        rows = file.metadata.num_rows
        if rows != 1:
            raise DataError(f"{printable(path)} must have one row, it has {rows}; restore the file")
        table = file.read(use_threads=False)
        table.validate(full=True)
        row = {
            name: _with_numbers(column)[0].as_py()
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    for name in LABEL_JSON_FIELDS:
        row[name] = parse_object(row[name] or "", f"field {name} of {path}")
    for fault in row.get("faults") or ():
        fault["parameters"] = parse_object(fault["parameters"] or "", f"parameters of a fault in {path}")
    return Label.from_row(row, origin=str(path))


def _with_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = _times_as_numbers(column.type)
    return column if kind is column.type or kind == column.type else column.cast(kind)


@lru_cache
def _times_as_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(_times_as_numbers(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _times_as_numbers(field.type)) for field in kind])
    return kind


def read_evidence(episode_path: Path | str) -> pd.DataFrame:
    """Return the checks that were made on an episode and what they saw."""
    return evidence_table(episode_path).to_pandas()


def evidence_table(episode_path: Path | str) -> pa.Table:
    """Return the same as an Arrow table; raise DataError when the file is missing or damaged."""
    path = Path(episode_path) / table_file("evidence")
    with open_table(path, "evidence", EVIDENCE) as file, translate_damage(path):
        table = file.read(use_threads=False)
        table.validate(full=True)
    return table


def read_journal(episode_path: Path | str) -> list[dict[str, Any]]:
    """Return the records of what was done to the platform, in order; lines torn by a crash are left out."""
    path = Path(episode_path) / JOURNAL_FILE
    content = read_regular(path, limit_bytes=TRUTH_LIMITS.file_bytes, below=path.parents[1])
    return list(json_lines(content, str(path)))
