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
    """Features on a regular grid, the same columns in every episode."""

    suffix = ""

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._dataset = dataset
        self._options = options
        self._folder = folder
        self._columns: set[str] = set()
        (folder / FEATURES).mkdir()

    def unavailable_reason(self, episode: str) -> str | None:
        """Return None: every episode fits."""
        return None

    def write(self, episode: str) -> None:
        """Write the features that an episode has."""
        frame = self._dataset.view(episode).wide(self._options.step_s, self._options.roles)
        names = [f"{service}/{metric}" for service, metric in frame.columns]
        self._columns.update(names)
        times = pa.array(pd.DatetimeIndex(frame.index).as_unit("ns").asi8).cast(pa.timestamp("ns", tz="UTC"))
        arrays = [times, *_columns(frame)]
        pq.write_table(pa.table(arrays, names=["time", *names]), parquet_path(self._draft(episode)))

    def finish(self) -> None:
        """Give every episode the same columns, and write labels and splits."""
        columns = sorted(self._columns)
        for episode in self._dataset.episodes:
            draft = self._draft(episode)
            table = pq.read_table(parquet_path(draft))
            nothing = pa.nulls(len(table), pa.float64())
            present = dict(zip(table.column_names, table.columns, strict=True))
            arrays = [present.get(name, nothing) for name in columns]
            draft.unlink()
            self._store(pa.table([table["time"], *arrays], names=["time", *columns]), self._folder / FEATURES / episode)
        labels = pa.Table.from_pylist([self._label(episode) for episode in self._dataset.episodes])
        pyarrow.csv.write_csv(labels, self._folder / "labels.csv")
        splits = {name: dict(sides) for name, sides in self._dataset.splits.items()}
        (self._folder / "splits.json").write_text(json.dumps(splits, indent=1, sort_keys=True) + "\n")

    def _label(self, episode: str) -> dict[str, Any]:
        label = self._dataset.label(episode)
        found: dict[str, Any] = {"episode": episode, "app": self._dataset.view(episode).context.app}
        found |= {name: getattr(label, name) for name in _LABEL_FIELDS}
        found["targets"] = " ".join(label.targets)
        found |= {name: getattr(label, name) for name in _INSTANTS}
        return found

    def _draft(self, episode: str) -> Path:
        return self._folder / FEATURES / f"{episode}.draft"

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
        pq.write_table(table, parquet_path(stem.with_suffix(".parquet")), compression="zstd")
