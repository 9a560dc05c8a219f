"""Layouts of metrics on a regular grid: wide tables, UCR time series, TSB-AD and windows for training."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from faultset.core.errors import DataError
from faultset.core.files import parquet_path
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import (
    SUBSETS,
    ExportLayout,
    ExportOptions,
    RecordingLayout,
    select_first_of_each_app,
)
from faultset.datasets.format.episodes import table_file
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.training.columns import ColumnFinder, FeatureColumns
from faultset.datasets.training.features import step_count, step_features
from faultset.datasets.training.windows import EpisodeWindows

FEATURES = "features"
_LABEL_FIELDS = ("fault", "no_fault_kind", "verdict", "system_level", "fault_type")
_INSTANTS = (
    "view_start_ns", "reference_end_ns", "inject_start_ns", "first_manifest_ns", "recover_start_ns", "view_end_ns",
)  # fmt: skip


class _Wide(ExportLayout):
    """Metrics on a regular grid; each file has the columns of its episode."""

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        super().__init__(dataset, options, folder)
        self._labels: list[dict[str, Any]] = []
        (folder / FEATURES).mkdir()

    def write(self, episode: str) -> None:
        """Write the metrics of an episode."""
        frame = self.dataset.view(episode).wide(self.options.step_s, self.options.roles)
        names = [f"{service}/{metric}" for service, metric in frame.columns]
        times = pa.array(pd.DatetimeIndex(frame.index).as_unit("ns").asi8).cast(pa.timestamp("ns", tz="UTC"))
        self._store(pa.table([times, *_columns(frame)], names=["time", *names]), self.folder / FEATURES / episode)
        self._labels.append(self._label(episode))

    def finish(self) -> None:
        """Write labels and splits."""
        pyarrow.csv.write_csv(pa.Table.from_pylist(self._labels), self.folder / "labels.csv")
        splits = {name: dict(subsets) for name, subsets in self.dataset.splits.items()}
        (self.folder / "splits.json").write_text(json.dumps(splits, indent=1, sort_keys=True) + "\n")

    def _label(self, episode: str) -> dict[str, Any]:
        label = self.dataset.label(episode)
        row: dict[str, Any] = {"episode": episode, "app": self.dataset.view(episode).context.app}
        row |= {name: getattr(label, name) for name in _LABEL_FIELDS}
        row["targets"] = " ".join(label.targets)
        return row | {name: getattr(label, name) for name in _INSTANTS}

    def _store(self, table: pa.Table, stem: Path) -> None:
        raise NotImplementedError


def _columns(frame: pd.DataFrame) -> list[pa.Array]:
    values = frame.to_numpy(dtype=float)
    return [pa.array(values[:, number], from_pandas=True) for number in range(values.shape[1])]


class WideCSV(_Wide):
    """A CSV file per episode."""

    def _store(self, table: pa.Table, stem: Path) -> None:
        pyarrow.csv.write_csv(table, stem.with_suffix(".csv"))


class WideParquet(_Wide):
    """A Parquet file per episode."""

    def _store(self, table: pa.Table, stem: Path) -> None:
        # With hundreds of columns and few rows, column metadata would be larger than the numbers.
        path = stem.with_suffix(".parquet")
        pq.write_table(table, parquet_path(path), compression="zstd", write_statistics=False, store_schema=False)


def _filled_frame(dataset: Dataset, episode: str, options: ExportOptions) -> pd.DataFrame:
    """Return the wide metrics with gaps filled by the previous number, the next number, or zero."""
    frame = dataset.view(episode).wide(options.step_s, options.roles)
    frame.columns = pd.Index([f"{service}/{metric}" for service, metric in frame.columns])
    return frame.ffill().bfill().fillna(0.0)


def _file_word(text: str) -> str:
    """Return a string as one word of a file name.

    >>> _file_word("my data/2")
    'my-data-2'
    """
    return re.sub(r"[^A-Za-z0-9-]+", "-", text)


class TimeSeriesFiles(ExportLayout):
    """`faultset_TRAIN.ts` and `faultset_TEST.ts`: episodes are cases, faults are classes, columns are dimensions.

    All cases have the same dimensions and lengths; a column that an episode lacks is missing (`?`) throughout. The
    subsets follow the split `by-episode`.
    """

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        super().__init__(dataset, options, folder)
        self._columns: set[str] = set()
        self._steps: dict[str, int] = {}
        self._members: dict[str, list[str]] = {}

    def prepare(self, episode: str) -> None:
        """Record the columns and the length of an episode."""
        frame = _filled_frame(self.dataset, episode, self.options)
        self._columns |= set(frame.columns)
        self._steps[episode] = len(frame)

    def write(self, episode: str) -> None:
        """Append an episode to the file of its subset."""
        columns = sorted(self._columns)
        if not self._members:
            self._create_files(columns)
        subset = self.find_subset(episode)
        self._members[subset].append(episode)
        frame = _filled_frame(self.dataset, episode, self.options).reindex(columns=columns)
        dimensions = ":".join(_format_numbers(frame[name].to_numpy()) for name in columns)
        with self._file(subset).open("a", encoding="utf-8") as file:
            file.write(f"{dimensions}:{_get_class(self.dataset, episode)}\n")

    def finish(self) -> None:
        """Write the names of the dimensions and the episode of each case."""
        for subset, episodes in self._members.items():
            rows = "".join(f"{episode}\n" for episode in episodes)
            (self.folder / f"{subset}_episodes.txt").write_text(rows, encoding="utf-8")
        names = json.dumps(sorted(self._columns), indent=1) + "\n"
        (self.folder / "dimensions.json").write_text(names, encoding="utf-8")

    def _create_files(self, columns: list[str]) -> None:
        lengths = set(self._steps.values())
        if len(lengths) > 1:
            raise DataError(
                f"the cases of a .ts file must have the same length, but episodes have {min(lengths)} to "
                f'{max(lengths)} steps; use "faultset dataset filter" to create a version with episodes of equal length'
            )
        classes = sorted({_get_class(self.dataset, episode) for episode in self._steps})
        for subset in SUBSETS:
            self._members[subset] = []
            self._file(subset).write_text(
                "@problemName faultset\n@timeStamps false\n@missing true\n@univariate false\n"
                f"@dimensions {len(columns)}\n@equalLength true\n@seriesLength {min(lengths)}\n"
                f"@classLabel true {' '.join(classes)}\n@data\n",
                encoding="utf-8",
            )

    def _file(self, subset: str) -> Path:
        return self.folder / f"faultset_{subset.upper()}.ts"


def _get_class(dataset: Dataset, episode: str) -> str:
    return _file_word(dataset.label(episode).fault or "none")


def _format_numbers(values: npt.NDArray[np.float64]) -> str:
    return ",".join("?" if np.isnan(value) else repr(value) for value in values.tolist())


LENGTH = 32
"""Steps in a window."""
_BATCH_SIZE = 256


class WindowsExport(ExportLayout):
    """`<subset>/` with `values.npy` and `mask.npy` [window, step, feature], `labels.npy` [window, step], and more.

    `ends_ns.npy`, `groups.npy`, `episodes.npy` and, for windows per service, `services.npy` have an entry per window.
    Each window starts one step after the previous one. `columns.json` names the columns, which come from the training
    episodes, except for windows per service. `numpy.load(path, mmap_mode="r")` reads windows on access.
    """

    has_services = True

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        super().__init__(dataset, options, folder)
        self._finder = _finder(options)
        self.prepare = None if self._finder is None else self._find_columns
        self._subsets: dict[str, _Subset] = {}

    def unavailable_reason(self, episode: str) -> str | None:
        start_ns, end_ns = self.dataset.view(episode).window
        steps = (end_ns - start_ns) / SECOND_NS / self.options.step_s
        return None if steps >= LENGTH else f"a window has {LENGTH} steps, but the episode has {steps:.0f}"

    def expected_bytes(self, episodes: Sequence[str]) -> int:
        """Estimate the size of all windows from the columns of the first episode of each application."""
        finder, views = _finder(self.options), [self.dataset.view(episode) for episode in episodes]
        for episode in select_first_of_each_app(self.dataset, episodes):
            if finder is not None:
                finder.add(self.dataset.view(episode))
            else:  # read it to measure the time per episode
                step_features(self.dataset.view(episode), self._columns(None))
        windows = sum(
            (step_count(view, self.options.step_s) - LENGTH + 1) * (len(view.services) if finder is None else 1)
            for view in views
        )
        return windows * LENGTH * len(self._columns(finder)) * (np.dtype(np.float32).itemsize + np.dtype(bool).itemsize)

    def write(self, episode: str) -> None:
        if not self._subsets:
            self._create_subsets()
        self._subsets[self.find_subset(episode)].write(episode)

    def finish(self) -> None:
        """Write the arrays to disk, and the episode and, if per service, the service of each window."""
        for subset in self._subsets.values():
            subset.close()

    def _find_columns(self, episode: str) -> None:
        if self._finder is not None and self.find_subset(episode) == "train":
            self._finder.add(self.dataset.view(episode))

    def _create_subsets(self) -> None:
        members: dict[str, list[str]] = {subset: [] for subset in SUBSETS}
        for episode in self.dataset.episodes:
            if self.unavailable_reason(episode) is None:
                members[self.find_subset(episode)].append(episode)
        if not members["train"]:
            raise DataError("no episode of the training subset has a window; choose a shorter --step")
        columns = self._columns(self._finder)
        (self.folder / "columns.json").write_text(json.dumps(columns.names, indent=1) + "\n", encoding="utf-8")
        for subset, episodes in members.items():
            if episodes:
                windows = EpisodeWindows(self.dataset, episodes, columns, length=LENGTH)
                self._subsets[subset] = _Subset(self.folder / subset, windows)

    def _columns(self, finder: ColumnFinder | None) -> FeatureColumns:
        if finder is not None:
            return finder.columns()
        return FeatureColumns.per_service(step_s=self.options.step_s, roles=self.options.roles)


class _Subset:
    """Arrays of training or test episodes, filled in the order of the windows."""

    def __init__(self, folder: Path, windows: EpisodeWindows) -> None:
        folder.mkdir()
        shape, width = (len(windows), LENGTH), len(windows.columns)
        kinds: dict[str, tuple[type, tuple[int, ...]]] = {
            "values": (np.float32, (*shape, width)),
            "mask": (bool, (*shape, width)),
            "labels": (np.int8, shape),
            "ends_ns": (np.int64, shape[:1]),
            "groups": (np.int64, shape[:1]),
        }
        self._arrays = {
            name: np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=kind, shape=size)
            for name, (kind, size) in kinds.items()
        }
        self.folder, self._windows = folder, windows
        self._names: dict[str, list[str]] = {"episodes": []}
        if windows.columns.is_per_service:
            self._names["services"] = []

    def write(self, episode: str) -> None:
        for batch in self._windows.episode_batches(episode, _BATCH_SIZE):
            first = len(self._names["episodes"])
            for name, array in self._arrays.items():
                array[first : first + len(batch)] = getattr(batch, name)
            for name, texts in self._names.items():
                texts += getattr(batch, name)

    def close(self) -> None:
        for array in self._arrays.values():
            array.flush()
        for name, texts in self._names.items():
            np.save(self.folder / f"{name}.npy", np.array(texts))


def _finder(options: ExportOptions) -> ColumnFinder | None:
    """Return a finder of columns, or None if they do not depend on episodes."""
    return None if options.per_service else ColumnFinder(step_s=options.step_s, roles=options.roles)


_CELL_BYTES = 10
Ints = npt.NDArray[np.int64]


class TSBADExport(RecordingLayout):
    """`<number>_<dataset>_id_<number>_<app>_tr_<steps>_1st_<step>.csv`: channels, then `Label`.

    The training steps of an episode are its reference. The training steps of a recording are the training part that its
    source defines. Without one, they are the healthy time at its start, at most up to the end of the training part in
    the split `by-time`. The step of a recording is at least its sampling interval. Episodes and recordings without a
    fault are refused, because the file name contains the first anomaly.
    """

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        super().__init__(dataset, options, folder)
        self._files: list[tuple[str, str]] = []

    def unavailable_reason(self, episode: str) -> str | None:
        label = self.dataset.label(episode)
        return "TSB-AD needs a fault, but the episode has none" if label.onset_ns is None else None

    def unavailable_recording_reason(self, recording: str) -> str | None:
        """Return a reason if the recording has no metrics or incidents, or starts with an incident."""
        if not self._count_samples(recording):
            return "TSB-AD needs metrics, but the recording has none"
        source = self.dataset.recording(recording)
        if not source.truth.incidents:
            return "TSB-AD needs an anomaly, but the recording has none"
        if self._training_end(source) <= source.start_ns:
            return "TSB-AD needs time for training, but the recording starts with an incident"
        return None

    def recording_bytes(self, recordings: Sequence[str]) -> int:
        """Estimate the size from the number of samples."""
        return _CELL_BYTES * sum(map(self._count_samples, recordings))

    def _count_samples(self, recording: str) -> int:
        files = self.dataset.recording_files[recording]
        return sum(record.rows or 0 for name, record in files.items() if name.endswith(table_file("metrics")))

    def write(self, episode: str) -> None:
        """Write an episode; a step is an anomaly if it ends after the onset."""
        frame = _filled_frame(self.dataset, episode, self.options)
        context, onset = self.dataset.view(episode).context, self.dataset.label(episode).onset_ns
        assert onset is not None  # `unavailable_reason` refuses episodes without a fault
        ends = _times(frame) + round(self.options.step_s * SECOND_NS)
        labels = (ends > onset).astype(np.int64)
        path = self._add(episode, context.app, int((ends <= context.reference_end_ns).sum()), labels)
        columns = {column: frame[column].to_numpy() for column in frame.columns} | {"Label": labels}
        pacsv.write_csv(pa.table(columns), path)

    def write_recording(self, recording: str) -> None:
        """Write a recording block by block; a step is an anomaly if it overlaps an incident."""
        source = self.dataset.recording(recording)
        step_s = max(self.options.step_s, source.context.sampling_step_s)
        first, starts = self._first_values(source, step_s)
        ends = starts + round(step_s * SECOND_NS)
        labels = np.zeros(len(starts), dtype=np.int64)
        for incident in source.truth.incidents:
            start_ns, end_ns = source.truth.bounds(incident)
            labels[(starts < end_ns) & (ends > start_ns)] = 1
        path = self._add(recording, source.context.app, int((ends <= self._training_end(source)).sum()), labels)
        names = [*first.index, "Label"]
        schema = pa.schema([(name, pa.int64() if name == "Label" else pa.float64()) for name in names])
        row = 0
        with pacsv.CSVWriter(path, schema) as writer:
            for frame in self._filled_blocks(source, step_s, first):
                columns = [frame[name].to_numpy(dtype=float) for name in first.index]
                writer.write_table(pa.table([*columns, labels[row : row + len(frame)]], schema=schema))
                row += len(frame)

    def _blocks(self, recording: Recording[Any], step_s: float) -> Iterator[pd.DataFrame]:
        for frame in recording.view.wide_blocks(step_s=step_s, roles=self.options.roles):
            frame.columns = pd.Index([f"{service}/{metric}" for service, metric in frame.columns])
            yield frame

    def _first_values(self, recording: Recording[Any], step_s: float) -> tuple[pd.Series, Ints]:
        """Return the first number of each column of a recording, and the start of each step."""
        first, starts = pd.Series(dtype=float), []
        for frame in self._blocks(recording, step_s):
            starts.append(_times(frame))
            first = first.combine_first(frame.bfill().iloc[0].astype(float))
        return first.fillna(0.0).sort_index(), np.concatenate(starts)

    def _filled_blocks(self, recording: Recording[Any], step_s: float, first: pd.Series) -> Iterator[pd.DataFrame]:
        """Yield blocks with all columns; a gap is filled with the last number before it."""
        last = first
        for frame in self._blocks(recording, step_s):
            filled = frame.reindex(columns=first.index).ffill().fillna(last)
            last = filled.iloc[-1]
            yield filled

    def _training_end(self, recording: Recording[Any]) -> int:
        splits = self.dataset.recording_splits
        ends = {
            name: max((stretch.end_ns for stretch in split.train if stretch.recording == recording.id), default=0)
            for name, split in splits.items()
        }
        healthy = next(iter(recording.truth.healthy_stretches), None)
        if healthy is None or healthy.start_ns > recording.start_ns:
            healthy_end_ns = recording.start_ns
        else:
            healthy_end_ns = healthy.end_ns
        return ends.get("by-source") or min(ends.get("by-time") or healthy_end_ns, healthy_end_ns)

    def _add(self, unit: str, app: str, training_steps: int, labels: Ints) -> Path:
        """Record the next file and return its path."""
        first = int(np.argmax(labels)) if labels.any() else len(labels)
        number = len(self._files) + 1
        dataset = _file_word(self.dataset.root.resolve().name)
        name = f"{number:03d}_{dataset}_id_{number}_{_file_word(app)}_tr_{training_steps}_1st_{first}.csv"
        self._files.append((name, unit))
        return self.folder / name

    def finish(self) -> None:
        rows = "".join(f"{name},{unit}\n" for name, unit in self._files)
        (self.folder / "episodes.csv").write_text(f"file_name,episode\n{rows}", encoding="utf-8")


def _times(frame: pd.DataFrame) -> Ints:
    return pd.DatetimeIndex(frame.index).as_unit("ns").asi8
