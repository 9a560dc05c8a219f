"""Writing an episode anew, its telemetry changed or as it is, in the form in which this release writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from faultset.core.files import write_text
from faultset.datasets.episode import Episode
from faultset.datasets.format.episodes import JOURNAL_FILE, EpisodeWriter
from faultset.datasets.format.labels import Label
from faultset.datasets.format.run_digests import run_digest
from faultset.datasets.format.schemas import time_column


def write_again(
    episode: Episode,
    folder: Path,
    changed: Mapping[str, pa.Table] | None = None,
    *,
    label: Label | None = None,
    evidence: pd.DataFrame | None = None,
    smallest: bool = False,
) -> None:
    """Write an episode into another dataset folder; its context stays as it is, and what else is not given.

    A journal that was of the same run as the telemetry is so afterwards, whatever rows were left out.

    Parameters
    ----------
    episode
        What to write.
    folder
        Folder of the other dataset.
    changed
        Telemetry tables by name, with the `episode` column, that take the place of the episode's own.
    label, evidence
        Truth that takes the place of the episode's own.
    smallest
        Write slower, with less space.
    """
    view, changed = episode.view, changed or {}
    before: dict[str, pa.ChunkedArray] = {}
    after: dict[str, pa.ChunkedArray] = {}
    with EpisodeWriter(folder, episode.id, smallest=smallest, added_tables=view.context.added_tables) as writer:
        for table in view.tables:
            rows, time = view.table(table), time_column(table)
            written = writer.write_table(table, [changed.get(table, rows)])
            before[table], after[table] = rows[time], written[time]
        writer.write_context(view.context)
        found = (episode.evidence if evidence is None else evidence).drop(columns="episode").to_dict("records")
        evidence_rows = [{str(name): _known(value) for name, value in row.items()} for row in found]
        truth = label or episode.label
        row = truth.as_row()
        del row["episode"]
        journal = episode.path / JOURNAL_FILE
        writer.write_truth(row, evidence_rows, journal)
        old, new = (
            run_digest(times, view_start_ns=truth.view_start_ns, inject_start_ns=truth.inject_start_ns)
            for times in (before, after)
        )
        write_text(writer.folder / JOURNAL_FILE, journal.read_text(encoding="utf-8").replace(old, new))
        writer.commit()


def _known(value: Any) -> Any:
    """Return None for what pandas holds for a missing value."""
    return None if value != value or value is None else value
