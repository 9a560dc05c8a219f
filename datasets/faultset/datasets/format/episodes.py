"""Write an episode as a folder that appears atomically."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.datasets.format.context import CONTEXT_FILE, EpisodeContext
from faultset.datasets.format.schemas import (
    EVIDENCE,
    LABEL,
    LABEL_JSON_FIELDS,
    TABLES,
    AddedTable,
    check_episode_id,
)
from faultset.datasets.format.table_folders import JOURNAL_FILE, TRUTH, TableFolderWriter

WRITTEN = "written"
"""Name of the journal note that holds the digest."""


def run_digest(times: Mapping[str, pa.ChunkedArray], *, view_start_ns: int, inject_start_ns: int | None) -> str:
    """Return a digest of each table's row count and first and last times, which distinguishes runs of the same plan.

    Parameters
    ----------
    times
        Time column of each table.
    inject_start_ns
        Time of the injection; None if there was none.
    """
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
