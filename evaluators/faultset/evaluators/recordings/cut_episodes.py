"""Cut ordinary episodes out of the recordings of a dataset, for localizers and diagnosers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.stretches import Stretch
from faultset.datasets.format.version_files import VERSIONS
from faultset.datasets.recordings.cuts import (
    REFERENCE_SHARE,
    CutLengths,
    plan_fault_cuts,
    plan_healthy_cuts,
    write_cuts,
)
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.training.folds import Fold, episode_labels, folds_of_split
from faultset.evaluators.execution.dataset_source import DatasetSource

BEFORE_S, AFTER_S = (60.0, 300.0), (20.0, 120.0)
"""Shortest and longest times before and after an onset."""
_KEPT = 0.9
"""Share of the incidents that should have these times."""


@dataclass(frozen=True, kw_only=True)
class CutEpisodes:
    """Episodes that were cut out of the recordings of a dataset."""

    dataset: Dataset
    origin: Dataset
    stretches: Mapping[str, Stretch]
    """Episode -> its window in a recording."""

    def rename(self, source: DatasetSource) -> DatasetSource:
        """Return the source of the cuts with the identity of their origin."""
        return replace(source, **identify_dataset(self.origin))

    def folds(self, split: str | None) -> tuple[Fold, ...]:
        """Return the fold of a published split of recordings; empty for all other splits.

        Raises
        ------
        DataError
            The test stretches contain no episode.
        """
        published = self.origin.recording_splits.get(split or "")
        if published is None:
            return ()
        train, test = (
            [episode for episode, window in self.stretches.items() if _contains(stretches, window)]
            for stretches in (published.train, published.test)
        )
        if not test:
            raise DataError(
                f'the test stretches of recordings split "{split}" of {self.origin.root} contain no incident with '
                "enough time around it; choose another --split, or --tasks detection"
            )
        return tuple(
            folds_of_split(
                split, {split or "": {"train": train, "test": test}}, [*episode_labels(self.dataset).values()]
            )
        )


def identify_dataset(dataset: Dataset) -> dict[str, str]:
    """Return name, version and digest of a dataset as a source has them."""
    root = Path(dataset.root).resolve()
    listing = root / VERSIONS / f"{dataset.version}.json"
    digest = hashlib.sha256(listing.read_bytes()).hexdigest()
    return {"name": root.name, "version": dataset.version, "digest": digest}


def _contains(stretches: Iterable[Stretch], window: Stretch) -> bool:
    return any(
        stretch.recording == window.recording
        and stretch.start_ns <= window.start_ns
        and window.end_ns <= stretch.end_ns
        for stretch in stretches
    )


def cut_recordings(dataset: Dataset) -> CutEpisodes | None:
    """Cut an episode around each incident of all recordings, and about as many without a fault.

    The times before and after the onset are those that nine tenths of the incidents have, within limits.

    Returns
    -------
    CutEpisodes or None
        None if no incident names a faulty service or has enough time.
    """
    recordings = dataset.recordings()
    lengths = choose_lengths(recordings)
    faults = [list(plan_fault_cuts(recording.truth, lengths)) for recording in recordings]
    if not any(cut.incident is not None and cut.incident.root_causes for cuts in faults for cut in cuts):
        return None
    most = max(map(len, faults))
    windows = {
        cut.episode_id(recording.id): Stretch(recording.id, cut.start_ns, cut.end_ns)
        for recording, cuts in zip(recordings, faults, strict=True)
        for cut in (*cuts, *plan_healthy_cuts(recording.truth, lengths, most))
    }
    hashes = sorted(record.sha256 for files in dataset.recording_files.values() for record in files.values())
    pairs = [(recording.view, recording.truth) for recording in recordings]
    folder = write_cuts(pairs, lengths, healthy=most, hashes=hashes)
    return CutEpisodes(dataset=open_dataset(folder), origin=dataset, stretches=windows)


def choose_lengths(recordings: Sequence[Recording[Any]]) -> CutLengths:
    """Return the times before and after an onset that nine tenths of the incidents have, within limits."""
    before, after = [], []
    for recording in recordings:
        truth = recording.truth
        ends = [stretch.end_ns for stretch in truth.healthy_stretches]
        starts = [stretch.start_ns for stretch in truth.healthy_stretches]
        for incident in truth.incidents:
            first_ns = incident.inject_start_ns or incident.start_ns
            if first_ns in ends:
                before.append((first_ns - starts[ends.index(first_ns)]) / SECOND_NS / REFERENCE_SHARE)
            after.append(((incident.recover_start_ns or truth.bounds(incident)[1]) - incident.start_ns) / SECOND_NS)
    return CutLengths(before_s=_choose(before, *BEFORE_S), after_s=_choose(after, *AFTER_S))


def _choose(values: Iterable[float], least: float, most: float) -> float:
    data = np.asarray(list(values))
    common = float(np.quantile(data, 1 - _KEPT)) if len(data) else least
    return min(most, max(least, float(np.floor(common))))
