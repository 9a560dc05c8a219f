"""Windows of features as NumPy arrays that are mapped into memory: for PyTorch, and for anything that reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportOptions, first_of_each_app
from faultset.datasets.exports.tables_by_split import SIDES, SPLIT
from faultset.datasets.training.columns import ColumnFinder, FeatureColumns
from faultset.datasets.training.features import step_count, step_features
from faultset.datasets.training.windows import EpisodeWindows, WindowBatch

LENGTH = 32
"""Steps in a window."""
_BATCH = 256


class WindowsExport:
    """`<side>/` with `values.npy` and `mask.npy` [window, step, feature], `labels.npy` [window, step], and more.

    `ends_ns.npy`, `groups.npy` and `episodes.npy` have one entry a window, and so has `services.npy` of windows per
    service. Windows follow each other step by step. The columns are those of training episodes, and are named in
    `columns.json`. `numpy.load(path, mmap_mode="r")` reads only the windows that are asked for.
    """

    has_services = True

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._dataset, self._options, self._folder = dataset, options, folder
        self._test = set(dataset.splits.get(SPLIT, {}).get("test", ()))
        self._finder = _finder(options)
        self.prepare = None if self._finder is None else self._find_columns
        self._sides: dict[str, _Side] = {}

    def unavailable_reason(self, episode: str) -> str | None:
        """Refuse an episode that is shorter than a window."""
        start_ns, end_ns = self._dataset.view(episode).window
        steps = (end_ns - start_ns) / SECOND_NS / self._options.step_s
        return None if steps >= LENGTH else f"a window has {LENGTH} steps, and an episode of {steps:.0f} holds none"

    def expected_bytes(self, episodes: Sequence[str]) -> int:
        """Compute the size of all windows, with the columns that the first episode of each application has."""
        finder, views = _finder(self._options), [self._dataset.view(episode) for episode in episodes]
        for episode in first_of_each_app(self._dataset, episodes):
            if finder is not None:
                finder.add(self._dataset.view(episode))
            else:  # its columns are known, and reading it shows how long the others take
                step_features(self._dataset.view(episode), self._columns(None))
        windows = sum(
            (step_count(view, self._options.step_s) - LENGTH + 1) * (len(view.services) if finder is None else 1)
            for view in views
        )
        return windows * LENGTH * len(self._columns(finder)) * (np.dtype(np.float32).itemsize + np.dtype(bool).itemsize)

    def write(self, episode: str) -> None:
        """Write the windows of one episode."""
        if not self._sides:
            self._begin()
        side = self._sides["test" if episode in self._test else "train"]
        side.write(episode)

    def finish(self) -> None:
        """Write which window is of which episode."""
        for side in self._sides.values():
            side.close()

    def _find_columns(self, episode: str) -> None:
        if episode not in self._test and self._finder is not None:
            self._finder.add(self._dataset.view(episode))

    def _begin(self) -> None:
        episodes = [episode for episode in self._dataset.episodes if self.unavailable_reason(episode) is None]
        members = {side: [one for one in episodes if (one in self._test) == (side == "test")] for side in SIDES}
        if not members["train"]:
            raise DataError("no episode of the training side has a window; choose a shorter --step")
        columns = self._columns(self._finder)
        (self._folder / "columns.json").write_text(json.dumps(columns.names, indent=1) + "\n", encoding="utf-8")
        for side, episodes in members.items():
            if episodes:
                windows = EpisodeWindows(self._dataset, episodes, columns, length=LENGTH)
                self._sides[side] = _Side(self._folder / side, windows)

    def _columns(self, finder: ColumnFinder | None) -> FeatureColumns:
        if finder is not None:
            return finder.columns()
        return FeatureColumns.per_service(step_s=self._options.step_s, roles=self._options.roles)


class _Side:
    """The arrays of one side, filled from the first window to the last."""

    def __init__(self, folder: Path, windows: EpisodeWindows) -> None:
        folder.mkdir()
        shape, width = (len(windows), LENGTH), len(windows.columns)
        self._arrays = {
            "values": _array(folder / "values.npy", np.dtype(np.float32), (*shape, width)),
            "mask": _array(folder / "mask.npy", np.dtype(bool), (*shape, width)),
            "labels": _array(folder / "labels.npy", np.dtype(np.int8), shape),
            "ends_ns": _array(folder / "ends_ns.npy", np.dtype(np.int64), shape[:1]),
            "groups": _array(folder / "groups.npy", np.dtype(np.int64), shape[:1]),
        }
        self._folder, self._windows = folder, windows
        self._names: dict[str, list[str]] = {"episodes": []}
        if windows.columns.is_per_service:
            self._names["services"] = []

    def write(self, episode: str) -> None:
        for batch in self._windows.episode_batches(episode, _BATCH):
            self._write(batch)

    def _write(self, batch: WindowBatch) -> None:
        first = len(self._names["episodes"])
        for name, array in self._arrays.items():
            array[first : first + len(batch)] = getattr(batch, name)
        for name, texts in self._names.items():
            texts += getattr(batch, name)

    def close(self) -> None:
        for array in self._arrays.values():
            array.flush()
        for name, texts in self._names.items():
            np.save(self._folder / f"{name}.npy", np.array(texts))


def _finder(options: ExportOptions) -> ColumnFinder | None:
    """Return what finds the columns; None where they are known without looking at episodes."""
    return None if options.per_service else ColumnFinder(step_s=options.step_s, roles=options.roles)


def _array(path: Path, kind: np.dtype, shape: tuple[int, ...]) -> np.memmap:
    return np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=shape)
