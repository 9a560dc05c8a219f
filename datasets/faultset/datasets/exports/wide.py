"""Wide tables for training: features in one file per episode, labels in a file apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from faultset.core.files import parquet_path
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportOptions

FEATURES = "features"
_LABEL_FIELDS = ("fault", "no_fault_kind", "verdict", "system_level", "fault_type")
_INSTANTS = (
    "view_start_ns", "reference_end_ns", "inject_start_ns", "first_manifest_ns", "recover_start_ns", "view_end_ns",
)  # fmt: skip


class _Wide:
    """Features on a regular grid; a file has the columns of its own episode."""

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._dataset = dataset
        self._options = options
        self._folder = folder
        self._labels: list[dict[str, Any]] = []
        (folder / FEATURES).mkdir()

    def unavailable_reason(self, episode: str) -> str | None:
        """Return None: every episode fits."""
        return None

    def write(self, episode: str) -> None:
        """Write the features that an episode has."""
        frame = self._dataset.view(episode).wide(self._options.step_s, self._options.roles)
        names = [f"{service}/{metric}" for service, metric in frame.columns]
        times = pa.array(pd.DatetimeIndex(frame.index).as_unit("ns").asi8).cast(pa.timestamp("ns", tz="UTC"))
        self._store(pa.table([times, *_columns(frame)], names=["time", *names]), self._folder / FEATURES / episode)
        self._labels.append(self._label(episode))

    def finish(self) -> None:
        """Write labels and splits."""
        pyarrow.csv.write_csv(pa.Table.from_pylist(self._labels), self._folder / "labels.csv")
        splits = {name: dict(sides) for name, sides in self._dataset.splits.items()}
        (self._folder / "splits.json").write_text(json.dumps(splits, indent=1, sort_keys=True) + "\n")

    def _label(self, episode: str) -> dict[str, Any]:
        label = self._dataset.label(episode)
        found: dict[str, Any] = {"episode": episode, "app": self._dataset.view(episode).context.app}
        found |= {name: getattr(label, name) for name in _LABEL_FIELDS}
        found["targets"] = " ".join(label.targets)
        found |= {name: getattr(label, name) for name in _INSTANTS}
        return found

    def _store(self, table: pa.Table, stem: Path) -> None:
        raise NotImplementedError


def _columns(frame: pd.DataFrame) -> list[pa.Array]:
    values = frame.to_numpy(dtype=float)
    return [pa.array(values[:, number], from_pandas=True) for number in range(values.shape[1])]


class WideCSV(_Wide):
    """One CSV file for each episode."""

    def _store(self, table: pa.Table, stem: Path) -> None:
        pyarrow.csv.write_csv(table, stem.with_suffix(".csv"))


class WideParquet(_Wide):
    """One Parquet file for each episode."""

    def _store(self, table: pa.Table, stem: Path) -> None:
        # with hundreds of columns of a few rows, descriptions of columns would take more than numbers
        path = stem.with_suffix(".parquet")
        pq.write_table(table, parquet_path(path), compression="zstd", write_statistics=False, store_schema=False)
