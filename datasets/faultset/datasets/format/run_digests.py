"""One text that tells the telemetry and the injection of one run from those of any other run of the same plan."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pyarrow as pa

from faultset.core.json_text import canonical_json

WRITTEN = "written"
"""Name of the journal's note that holds the digest."""


def run_digest(times: Mapping[str, pa.ChunkedArray], *, view_start_ns: int, inject_start_ns: int | None) -> str:
    """Return a digest of how many rows each table has and from when to when.

    Parameters
    ----------
    times
        The column of each table that places its rows in time.
    inject_start_ns
        When the fault was injected; None without a fault.
    """
    spans = {table: _span(column) for table, column in times.items()}
    known = {"tables": spans, "view_start_ns": view_start_ns, "inject_start_ns": inject_start_ns}
    return hashlib.sha256(canonical_json(known).encode()).hexdigest()


def _span(column: pa.ChunkedArray) -> list[int | None]:
    stamps = column.cast(pa.int64()).to_numpy()
    return [len(stamps), int(stamps.min()), int(stamps.max())] if len(stamps) else [0, None, None]
