"""Train on one dataset and test on another, where one or both have recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from faultset.core.errors import DataError
from faultset.core.output import Progress
from faultset.core.printable import count_text
from faultset.datasets.dataset import Dataset
from faultset.datasets.recordings.recording import Recording
from faultset.evaluators.execution.dataset_source import DatasetSource, open_source
from faultset.evaluators.execution.settings import EvaluationScope, build_training_data
from faultset.evaluators.recordings.cut_episodes import cut_recordings
from faultset.evaluators.recordings.detection_plan import DetectionPlan


def check_recordings_differ(train: Dataset, test: Dataset) -> None:
    """Raise DataError if a recording is in both datasets, possibly under different names."""
    tested = test.recordings()
    both = [
        item.id
        for item in train.recordings()
        if any(item.id == other.id or _has_same_content(item, other) for other in tested)
    ]
    if both:
        raise DataError(
            f"{train.root} and {test.root} share {count_text(len(both), 'recording')} (first: {both[0]}), so methods "
            "would be tested on their training data; train on a dataset that shares no recording"
        )


def _has_same_content(item: Recording[Dataset], other: Recording[Dataset]) -> bool:
    """Return whether two recordings cover the same times and have the same metrics in their first chunk."""
    windows = [[(chunk.start_ns, chunk.end_ns) for chunk in recording.view.chunks] for recording in (item, other)]
    if windows[0] != windows[1]:
        return False
    first, second = (
        recording.table("metrics", *windows[0][0]).select(["time", "value"]) for recording in (item, other)
    )
    return first.equals(second)


@contextmanager
def open_training_episodes(train: str | Dataset, workers: int) -> Iterator[Callable[[], DatasetSource]]:
    """Open the dataset on which methods for episodes are trained; see `open_source`.

    If the dataset has no episodes, they are cut out of its recordings.

    Raises
    ------
    DataError
        No episode can be cut out of the recordings.
    """
    if isinstance(train, str) or train.episodes:
        with open_source(train, None, workers) as read_source:
            yield read_source
        return
    train.check_files(workers)
    cuts = cut_recordings(train)
    if cuts is None:
        raise DataError(
            f"{train.root} has only recordings, and no episode can be cut from them: this requires several services "
            "and an incident with a known root cause and enough telemetry around it; choose another --train, or "
            "--tasks detection"
        )
    with open_source(cuts.dataset, None, workers) as read_source:
        yield lambda: cuts.restore_identity(read_source())


@contextmanager
def open_training_scope(
    train: str | Dataset, scope: EvaluationScope, workers: int, progress: Progress | None = None
) -> Iterator[EvaluationScope]:
    """Yield the scope of an evaluation on recordings whose detectors learn from another dataset.

    They learn from the healthy stretches of its recordings, or from its episodes if it has no recordings.
    """
    if isinstance(train, Dataset) and train.recording_files:
        train.check_files(workers)
        source = DetectionPlan.for_training(train).load_source(progress)
        yield _set_training(source, scope)
        return
    with open_source(train, None, workers) as read_source:
        yield _set_training(read_source(), scope)


def _set_training(source: DatasetSource, scope: EvaluationScope) -> EvaluationScope:
    training = build_training_data(source, scope.source)
    settings = replace(scope.settings, split=None, train=f"{training.name} {source.digest}")
    return replace(scope, settings=settings, training=training, chosen_folds=())
