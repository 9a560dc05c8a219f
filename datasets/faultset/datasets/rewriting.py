"""Writing an episode anew, its telemetry changed or as it is, in the form in which this release writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from faultset.datasets.episode import Episode
from faultset.datasets.format.episodes import TRUTH, EpisodeWriter
from faultset.datasets.format.labels import Label


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
    with EpisodeWriter(folder, episode.id, smallest=smallest, added_tables=view.context.added_tables) as writer:
        for table in view.tables:
            writer.write_table(table, [changed[table] if table in changed else view.table(table)])
        writer.write_context(view.context)
        found = (episode.evidence if evidence is None else evidence).drop(columns="episode").to_dict("records")
        rows = [{str(name): _known(value) for name, value in row.items()} for row in found]
        row = (label or episode.label).as_row()
        del row["episode"]
        writer.write_truth(row, rows, episode.path / TRUTH / "journal.jsonl")
        writer.commit()


def _known(value: Any) -> Any:
    """Return None for what pandas holds for a missing value."""
    return None if value != value or value is None else value
