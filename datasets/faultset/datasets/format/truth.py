"""Reading what really happened in an episode. Methods must not; a test holds the baselines to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.errors import DataError
from faultset.core.json_lines import read_json_lines
from faultset.datasets.format.episodes import TRUTH
from faultset.datasets.format.labels import Label
from faultset.datasets.format.schemas import LABEL_JSON_FIELDS
from faultset.datasets.format.storage import damage_named, open_parquet

if TYPE_CHECKING:
    import pandas as pd


def read_label(episode_path: Path | str) -> Label:
    """Return what really happened in an episode; raise DataError when the file is missing or damaged."""
    path = Path(episode_path) / TRUTH / "label.parquet"
    file = open_parquet(path)
    with damage_named(path):
        table = file.read(use_threads=False)
    if len(table) != 1:
        raise DataError(f"{path} must have one row, it has {len(table)}; restore the file")
    row = {
        name: column.cast("int64")[0].as_py() if str(column.type).startswith("timestamp") else column[0].as_py()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    for name in LABEL_JSON_FIELDS:
        row[name] = json.loads(row[name])
    return Label.from_row(row)


def read_evidence(episode_path: Path | str) -> pd.DataFrame:
    """Return the checks that were made on an episode and what they saw."""
    path = Path(episode_path) / TRUTH / "evidence.parquet"
    file = open_parquet(path)
    with damage_named(path):
        return file.read().to_pandas()


def read_journal(episode_path: Path | str) -> list[dict[str, Any]]:
    """Return the records of what was done to the platform, in order; lines torn by a crash are left out."""
    path = Path(episode_path) / TRUTH / "journal.jsonl"
    try:
        return read_json_lines(path)
    except FileNotFoundError:
        raise DataError(f"{path} is missing; restore it or collect the episode again") from None
