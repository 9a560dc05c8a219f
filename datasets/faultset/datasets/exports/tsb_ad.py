"""Export the layout of TSB-AD: a CSV file of channels and labels for each episode or recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv

from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportOptions, RecordingLayout
from faultset.datasets.exports.wide import file_word, filled_frame
from faultset.datasets.format.episodes import table_file
from faultset.datasets.recordings.recording import Recording

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
        """Return a reason if the episode has no fault."""
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
        frame = filled_frame(self.dataset, episode, self.options)
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
        words = [file_word(self.dataset.root.resolve().name), file_word(app)]
        name = f"{number:03d}_{words[0]}_id_{number}_{words[1]}_tr_{training_steps}_1st_{first}.csv"
        self._files.append((name, unit))
        return self.folder / name

    def finish(self) -> None:
        """Write the episode or recording of each file."""
        rows = "".join(f"{name},{unit}\n" for name, unit in self._files)
        (self.folder / "episodes.csv").write_text(f"file_name,episode\n{rows}", encoding="utf-8")


def _times(frame: pd.DataFrame) -> Ints:
    return pd.DatetimeIndex(frame.index).as_unit("ns").asi8
