"""Write the watches of recordings as episodes, so that detectors run on them like on any dataset."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError
from faultset.core.files import translate_write_errors
from faultset.core.locks import new_folder
from faultset.datasets.cache import cached_path
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.stretches import Stretch
from faultset.datasets.format.versions import create_version
from faultset.datasets.recordings.cuts import REVISION, cut_view, write_cut
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.training.folds import Fold
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.recordings.folds import fold_recordings, identify_dataset
from faultset.evaluators.recordings.watches import RecordingWatch, plan_healthy_watches, plan_watches, reference_ns

Planner = Callable[[Recording[Dataset], Sequence[Stretch]], Iterator[RecordingWatch]]


@dataclass(frozen=True, kw_only=True)
class WatchPlan:
    """The recordings of a dataset, and the watches in which detectors learn and are tested."""

    dataset: Dataset
    recordings: Mapping[str, Recording[Dataset]]
    """Id -> recording."""
    split: str
    """Name of the split of the recordings."""
    tested: Mapping[int, tuple[RecordingWatch, ...]]
    """Fold -> tested watches, by recording and time."""
    learned: Mapping[int, tuple[RecordingWatch, ...]]
    """Fold -> healthy watches that detectors learn from."""

    @classmethod
    def of(cls, dataset: Dataset, split: str | None = None) -> WatchPlan:
        """Plan the watches of all recordings; see `fold_recordings` for `split`.

        Raises
        ------
        DataError
            No tested recording has a healthy reference.
        """
        name, folds = fold_recordings(dataset, split)
        recordings = {recording.id: recording for recording in dataset.recordings()}

        def plan(planner: Planner, stretches: Sequence[Stretch]) -> tuple[RecordingWatch, ...]:
            return tuple(watch for recording in recordings.values() for watch in planner(recording, stretches))

        tested = {fold.number: plan(plan_watches, fold.test) for fold in folds}
        if not any(tested.values()):
            least_s = min(map(reference_ns, recordings.values())) / 1e9
            raise DataError(
                f"the tested recordings of {dataset.root} are never healthy for {least_s:g} s, the length of a "
                "reference, so no detector can watch them; choose another --split, or record longer gaps between "
                "incidents"
            )
        learned = {fold.number: plan(plan_healthy_watches, fold.train) for fold in folds}
        return cls(dataset=dataset, recordings=recordings, split=name, tested=tested, learned=learned)

    @cached_property
    def watches(self) -> dict[str, RecordingWatch]:
        """Episode id -> watch."""
        every = (*self.learned.values(), *self.tested.values())
        return {watch.episode: watch for watches in every for watch in watches}

    @property
    def folds(self) -> tuple[Fold, ...]:
        """The folds in terms of episodes."""
        return tuple(
            Fold(
                number=number,
                healthy_train=tuple(dict.fromkeys(watch.episode for watch in self.learned[number])),
                faulty_train=(),
                test=tuple(watch.episode for watch in watches),
            )
            for number, watches in self.tested.items()
        )

    def source(self, progress: Progress | None = None) -> DatasetSource:
        """Write the watches into the cache of the dataset, unless they are there, and read them as a dataset.

        Parameters
        ----------
        progress
            Called as watches are written.
        """
        folder = cached_path(Path(self.dataset.root).resolve(), f"watches-{self._key()}")
        if not folder.is_dir():
            self._write(folder, progress)
        source = DatasetSource.of(open_dataset(folder))
        return replace(source, **identify_dataset(self.dataset))

    def _key(self) -> str:
        hashes = [record.sha256 for files in self.dataset.recording_files.values() for record in files.values()]
        identity = json.dumps([REVISION, sorted(hashes), [astuple(watch) for watch in self.watches.values()]])
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def _write(self, folder: Path, progress: Progress | None) -> None:
        steps = StepCounter(len(self.watches), progress)
        with translate_disk_full(folder.parent), translate_write_errors(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with new_folder(folder, "write watches") as scratch:
                for watch in self.watches.values():
                    recording = self.recordings[watch.recording]
                    if watch.healthy:
                        write_cut(recording.view, recording.truth, watch.cut, scratch)
                    else:
                        cut_view(
                            recording.view,
                            scratch,
                            start_ns=watch.reference_start_ns,
                            end_ns=watch.end_ns,
                            reference_end_ns=watch.start_ns,
                        )
                    steps.add()
                create_version(scratch, provenance={"watches_of": self.dataset.version})
