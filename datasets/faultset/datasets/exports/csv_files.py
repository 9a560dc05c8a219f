"""CSV files of other benchmarks, and log lines as they hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pacsv

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.


def write_csv(table: pa.Table, path: Path) -> None:
    """Write a table as CSV with text in quotes; the folders above it are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = [field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in table.schema]
    pacsv.write_csv(table.cast(pa.schema(plain)), path)


def lines_with_level(logs: pa.Table) -> pa.ChunkedArray:
    """Return messages with their level before them, for layouts that have no column for it.

    Parameters
    ----------
    logs
        Rows of the table `logs`, with the columns `level` and `message`.
    """
    level = logs["level"].cast(pa.string())
    return pc.coalesce(pc.binary_join_element_wise(level, logs["message"], ": "), logs["message"])


def services_of(spans: pa.Table) -> pa.ChunkedArray:
    """Return the service of each span, or what the process called itself where no workload owns it."""
    return pc.coalesce(spans["service"].cast(pa.string()), spans["reported_service"].cast(pa.string()))
