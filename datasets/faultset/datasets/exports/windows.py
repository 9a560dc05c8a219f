"""Windows of features as NumPy arrays that are mapped into memory: for PyTorch, and for anything that reads them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from faultset.core.errors import DataError
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportOptions
from faultset.datasets.exports.tables_by_split import SIDES, SPLIT
from faultset.datasets.training.columns import FeatureColumns
from faultset.datasets.training.windows import EpisodeWindows

LENGTH = 32
"""Steps in a window."""


class WindowsExport:
    """`<side>/` with `values.npy` and `mask.npy` [window, step, feature], `labels.npy` [window, step], and more.

    `ends_ns.npy`, `groups.npy` and `episodes.npy` have one entry a window. Windows follow each other step by step. The
    columns are those of training episodes, and are named in `columns.json`.
    `numpy.load(path, mmap_mode="r")` reads only the windows that are asked for.
    """

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._dataset, self._options, self._folder = dataset, options, folder
        self._episodes: list[str] = []

    def unavailable_reason(self, episode: str) -> str | None:
        """Refuse an episode that is shorter than a window."""
        start, end = self._dataset.view(episode).window
        steps = (end - start) / 1e9 / self._options.step_s
        return None if steps >= LENGTH else f"a window has {LENGTH} steps, and an episode of {steps:.0f} holds none"

    def write(self, episode: str) -> None:
        """Note one episode."""
        self._episodes.append(episode)

    def finish(self) -> None:
        """Write both sides, episode by episode."""
        test = set(self._dataset.splits.get(SPLIT, {}).get("test", ()))
        members = {side: [one for one in self._episodes if (one in test) == (side == "test")] for side in SIDES}
        if not members["train"]:
            raise DataError("no episode of the training side has a window; choose a shorter --step")
        views = (self._dataset.view(episode) for episode in members["train"])
        roles = self._options.roles
        columns = FeatureColumns.of(views, step_s=self._options.step_s, roles=None if roles is None else tuple(roles))
        (self._folder / "columns.json").write_text(json.dumps(columns.names, indent=1) + "\n", encoding="utf-8")
        for side, episodes in members.items():
            if episodes:
                self._write_side(self._folder / side, episodes, columns)

    def _write_side(self, folder: Path, episodes: list[str], columns: FeatureColumns) -> None:
        folder.mkdir()
        windows = EpisodeWindows(self._dataset, episodes, columns, length=LENGTH)
        shape = (len(windows), LENGTH)
        arrays = {
            "values": _array(folder / "values.npy", np.dtype(np.float32), (*shape, len(columns))),
            "mask": _array(folder / "mask.npy", np.dtype(bool), (*shape, len(columns))),
            "labels": _array(folder / "labels.npy", np.dtype(np.int8), shape),
            "ends_ns": _array(folder / "ends_ns.npy", np.dtype(np.int64), shape[:1]),
            "groups": _array(folder / "groups.npy", np.dtype(np.int64), shape[:1]),
        }
        names: list[str] = []
        for batch in windows.batches(256):
            first, last = len(names), len(names) + len(batch)
            for name, array in arrays.items():
                array[first:last] = getattr(batch, name)
            names += batch.episodes
        for array in arrays.values():
            array.flush()
        np.save(folder / "episodes.npy", np.array(names))


def _array(path: Path, kind: np.dtype, shape: tuple[int, ...]) -> np.memmap:
    return np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=shape)
