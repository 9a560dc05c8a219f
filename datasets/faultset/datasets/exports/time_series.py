"""Wide metrics as benchmarks of time series have them: TSB-AD's CSV, and the `.ts` files of sktime and aeon."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportOptions
from faultset.datasets.exports.tables_by_split import SIDES, SPLIT

_NO_FAULT = "none"


def filled_frame(dataset: Dataset, episode: str, options: ExportOptions) -> pd.DataFrame:
    """Return the wide metrics without gaps: the last number is held, then the next, then zero."""
    frame = dataset.view(episode).wide(options.step_s, options.roles)
    frame.columns = pd.Index([f"{service}/{metric}" for service, metric in frame.columns])
    return frame.ffill().bfill().fillna(0.0)


class TSBADExport:
    """`<number>_<dataset>_id_<number>_<app>_tr_<steps>_1st_<step>.csv`: channels, then `Label`; one file an episode.

    The steps of the reference are for training. An episode without a fault has no first anomaly, which the name of a
    file has to say.
    """

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._dataset, self._options, self._folder = dataset, options, folder
        self._files: list[tuple[str, str]] = []

    def unavailable_reason(self, episode: str) -> str | None:
        """Refuse what has no anomaly."""
        label = self._dataset.label(episode)
        return "TSB-AD has no place for an episode without a fault" if label.onset_ns is None else None

    def write(self, episode: str) -> None:
        """Write one episode; a step is an anomaly when it ends after the onset."""
        frame = filled_frame(self._dataset, episode, self._options)
        context, onset = self._dataset.view(episode).context, self._dataset.label(episode).onset_ns
        assert onset is not None  # such an episode is left out
        ends = frame.index.as_unit("ns").asi8 + round(self._options.step_s * SECOND_NS)  # type: ignore[attr-defined]
        labels = (ends > onset).astype(np.int64)
        train = int((ends <= context.reference_end_ns).sum())
        first = int(np.argmax(labels)) if labels.any() else len(labels)
        number = len(self._files) + 1
        words = [_word(self._dataset.root.resolve().name), _word(context.app)]
        name = f"{number:03d}_{words[0]}_id_{number}_{words[1]}_tr_{train}_1st_{first}.csv"
        columns = {column: frame[column].to_numpy() for column in frame.columns} | {"Label": labels}
        pyarrow.csv.write_csv(pa.table(columns), self._folder / name)
        self._files.append((name, episode))

    def finish(self) -> None:
        """Write which file is which episode."""
        rows = "".join(f"{name},{episode}\n" for name, episode in self._files)
        (self._folder / "episodes.csv").write_text(f"file_name,episode\n{rows}", encoding="utf-8")


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "-", text)


class TimeSeriesFiles:
    """`faultset_TRAIN.ts` and `faultset_TEST.ts`: an episode is a case, its fault the class, a column a dimension.

    All cases have the same dimensions and lengths; a column that an episode lacks is missing (`?`) in all of it. The
    sides are those of the split `by-episode`.
    """

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._dataset, self._options, self._folder = dataset, options, folder
        self._test = set(dataset.splits.get(SPLIT, {}).get("test", ()))
        self._columns: set[str] = set()
        self._steps: dict[str, int] = {}
        self._members: dict[str, list[str]] = {}

    def unavailable_reason(self, episode: str) -> str | None:
        """Return None: whether lengths are equal is seen when all are known."""
        return None

    def prepare(self, episode: str) -> None:
        """Note columns and length of one episode."""
        frame = filled_frame(self._dataset, episode, self._options)
        self._columns |= set(frame.columns)
        self._steps[episode] = len(frame)

    def write(self, episode: str) -> None:
        """Append one episode to the file of its side."""
        columns = sorted(self._columns)
        if not self._members:
            self._begin(columns)
        side = "test" if episode in self._test else "train"
        self._members[side].append(episode)
        frame = filled_frame(self._dataset, episode, self._options).reindex(columns=columns)
        dimensions = ":".join(_numbers(frame[name].to_numpy()) for name in columns)
        with self._file(side).open("a", encoding="utf-8") as file:
            file.write(f"{dimensions}:{_fault(self._dataset, episode)}\n")

    def finish(self) -> None:
        """Write the names of the dimensions, and the episodes in the order of the cases."""
        for side, episodes in self._members.items():
            rows = "".join(f"{episode}\n" for episode in episodes)
            (self._folder / f"{side}_episodes.txt").write_text(rows, encoding="utf-8")
        names = json.dumps(sorted(self._columns), indent=1) + "\n"
        (self._folder / "dimensions.json").write_text(names, encoding="utf-8")

    def _begin(self, columns: list[str]) -> None:
        lengths = set(self._steps.values())
        if len(lengths) > 1:
            raise DataError(
                f"the cases of a .ts file must be equally long, these episodes have {min(lengths)} to {max(lengths)} "
                'steps; make a version of episodes of one length with "faultset dataset filter"'
            )
        classes = sorted({_fault(self._dataset, episode) for episode in self._steps})
        for side in SIDES:
            self._members[side] = []
            self._file(side).write_text(
                "@problemName faultset\n@timeStamps false\n@missing true\n@univariate false\n"
                f"@dimensions {len(columns)}\n@equalLength true\n@seriesLength {min(lengths)}\n"
                f"@classLabel true {' '.join(classes)}\n@data\n",
                encoding="utf-8",
            )

    def _file(self, side: str) -> Path:
        return self._folder / f"faultset_{side.upper()}.ts"


def _fault(dataset: Dataset, episode: str) -> str:
    return _word(dataset.label(episode).fault or _NO_FAULT)


def _numbers(values: npt.NDArray[np.float64]) -> str:
    return ",".join("?" if np.isnan(value) else repr(value) for value in values.tolist())
