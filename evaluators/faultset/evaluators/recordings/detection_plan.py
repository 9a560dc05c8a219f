"""Write the windows of recordings as episodes, so that detectors run on them as on any dataset."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path

from faultset.core.errors import DataError
from faultset.core.files import translate_write_errors
from faultset.core.locks import new_folder
from faultset.core.output import Progress, StepCounter
from faultset.datasets.cache import cached_path, make_cache
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.recordings import Stretch
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.versions import create_version
from faultset.datasets.recordings.cuts import REVISION, cut_view, write_cut
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.training.folds import Fold
from faultset.evaluators.execution.dataset_source import DatasetSource, identify_dataset
from faultset.evaluators.recordings.detection_windows import (
    DetectionWindow,
    choose_reference_ns,
    plan_detection_windows,
    plan_training_windows,
)
from faultset.evaluators.recordings.folds import RecordingFold, fold_recordings, list_whole_stretches

Planner = Callable[[Recording[Dataset], Sequence[Stretch]], Iterator[DetectionWindow]]


@dataclass(frozen=True, kw_only=True)
class DetectionPlan:
    """The recordings of a dataset, and the windows in which detectors learn and are tested."""

    dataset: Dataset
    recordings: Mapping[str, Recording[Dataset]]
    """Id -> recording."""
    split: str
    """Name of the split of the recordings."""
    tested: Mapping[int, tuple[DetectionWindow, ...]]
    """Fold -> tested windows, by recording and time."""
    learned: Mapping[int, tuple[DetectionWindow, ...]]
    """Fold -> healthy windows that detectors learn from."""
    train: str | Dataset | None = None
    """Separate training dataset, or the URL of one without recordings."""

    @classmethod
    def of(cls, dataset: Dataset, split: str | None = None) -> DetectionPlan:
        """Plan the windows of all recordings; see `fold_recordings` for `split`.

        Raises
        ------
        DataError
            No tested recording has a healthy reference.
        """
        return cls._of_folds(dataset, *fold_recordings(dataset, split))

    @classmethod
    def for_testing(cls, dataset: Dataset, train: str | Dataset) -> DetectionPlan:
        """Plan windows over whole recordings, for detectors that learn from another dataset; see `of`."""
        fold = RecordingFold(number=0, train=(), test=list_whole_stretches(dataset))
        return replace(cls._of_folds(dataset, "", [fold]), train=train)

    @classmethod
    def for_training(cls, dataset: Dataset) -> DetectionPlan:
        """Plan windows over all healthy stretches, for detectors that are tested on another dataset.

        Raises
        ------
        DataError
            No recording has a healthy stretch of the length of a reference.
        """
        fold = RecordingFold(number=0, train=list_whole_stretches(dataset), test=())
        plan = cls._of_folds(dataset, "", [fold])
        if not plan.learned[0]:
            raise DataError(
                f"the recordings of {dataset.root} are never healthy for the length of a reference, so no detector can "
                "learn from them; choose another --train"
            )
        return plan

    @classmethod
    def _of_folds(cls, dataset: Dataset, name: str, folds: Sequence[RecordingFold]) -> DetectionPlan:
        recordings = {recording.id: recording for recording in dataset.recordings()}

        def plan(planner: Planner, stretches: Sequence[Stretch]) -> tuple[DetectionWindow, ...]:
            return tuple(window for recording in recordings.values() for window in planner(recording, stretches))

        tested = {fold.number: plan(plan_detection_windows, fold.test) for fold in folds}
        if any(fold.test for fold in folds) and not any(tested.values()):
            min_reference_s = min(map(choose_reference_ns, recordings.values())) / 1e9
            raise DataError(
                f"the tested recordings of {dataset.root} are never healthy for {min_reference_s:g} s, the length of a "
                "reference, so no detector can watch them; choose another --split, or record longer gaps between "
                "incidents"
            )
        learned = {fold.number: plan(plan_training_windows, fold.train) for fold in folds}
        return cls(dataset=dataset, recordings=recordings, split=name, tested=tested, learned=learned)

    @cached_property
    def windows(self) -> dict[str, DetectionWindow]:
        """Episode id -> window."""
        folds = (*self.learned.values(), *self.tested.values())
        return {window.episode: window for windows in folds for window in windows}

    @property
    def folds(self) -> tuple[Fold, ...]:
        """The folds in terms of episodes."""
        return tuple(
            Fold(
                number=number,
                healthy_train=tuple(dict.fromkeys(window.episode for window in self.learned[number])),
                faulty_train=(),
                test=tuple(window.episode for window in windows),
            )
            for number, windows in self.tested.items()
        )

    def load_source(self, progress: Progress | None = None) -> DatasetSource:
        """Write the windows into the cache of the dataset, unless they are already there, and read them as a dataset.

        Parameters
        ----------
        progress
            Called as windows are written.
        """
        folder = cached_path(Path(self.dataset.root).resolve(), f"detection-windows-{self._hash_windows()}")
        if not folder.is_dir():
            self._write(folder, progress)
        source = DatasetSource.of(open_dataset(folder))
        return replace(source, **identify_dataset(self.dataset)._asdict())

    def _hash_windows(self) -> str:
        windows = [astuple(window) for window in self.windows.values()]
        identity = json.dumps([REVISION, self.dataset.recording_hashes, windows])
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def _write(self, folder: Path, progress: Progress | None) -> None:
        steps = StepCounter(len(self.windows), progress)
        with translate_disk_full(folder.parent), translate_write_errors(folder):
            make_cache(folder)
            with new_folder(folder, "write windows") as scratch:
                for window in self.windows.values():
                    recording = self.recordings[window.recording]
                    if window.healthy:
                        write_cut(recording.view, recording.truth, window.cut, scratch)
                    else:
                        cut_view(
                            recording.view,
                            scratch,
                            start_ns=window.reference_start_ns,
                            end_ns=window.end_ns,
                            reference_end_ns=window.start_ns,
                        )
                    steps.add()
                create_version(scratch, provenance={"windows_of": self.dataset.version})
