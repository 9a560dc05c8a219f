"""Training on one dataset and testing on another: what may be learned from, and proof that nothing is on both sides."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

import pyarrow as pa

from faultset.core.errors import DataError, UsageError
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.training.folds import Fold
from faultset.datasets.views import EpisodeView
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.results.truth import Truth


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """A dataset that methods learn from, while another one is tested."""

    source: DatasetSource
    fold: Fold
    left_out: tuple[str, ...]
    """Training episodes that are not learned from, because their (application, fault, target) is tested."""

    @property
    def name(self) -> str:
        """What rows and reports call it in place of a split."""
        return f"train on {self.source.name} {self.source.version}"

    @property
    def record(self) -> dict[str, object]:
        """What settings and reports say about it."""
        return {
            "source": self.source.url or str(self.source.folder),
            "name": self.source.name,
            "version": self.source.version,
            "digest": self.source.digest,
            "episodes": len(self.fold.healthy_train) + len(self.fold.faulty_train),
            "left_out": len(self.left_out),
        }


def training_data(train: DatasetSource, test: DatasetSource) -> TrainingData:
    """Make the one fold of an evaluation that learns from one dataset and is tested on another.

    No episode is in both, and fault episodes whose cluster (application, fault, target) is tested are not learned from.

    Raises
    ------
    DataError
        An episode is in both datasets, under one name or two.
    UsageError
        Nothing is left to learn from.
    """
    _check_apart(train, test)
    tested = {problem for truth in test.truths for problem in truth.problems}
    kept = [truth for truth in train.truths if tested.isdisjoint(truth.problems)]
    if not kept:
        raise UsageError(
            f"every (application, fault, target) of {train.name} is also in {test.name}, so nothing is left to learn "
            "from; train on other faults, targets or applications, or use --split"
        )
    fold = Fold(
        number=0,
        healthy_train=tuple(truth.episode for truth in kept if not truth.faulty),
        faulty_train=tuple(truth.episode for truth in kept if truth.faulty),
        test=tuple(truth.episode for truth in sorted(test.truths, key=lambda truth: not truth.faulty)),
    )
    left_out = tuple(truth.episode for truth in train.truths if not tested.isdisjoint(truth.problems))
    return TrainingData(source=train, fold=fold, left_out=left_out)


def _check_apart(train: DatasetSource, test: DatasetSource) -> None:
    names = {truth.episode for truth in test.truths}
    both = [(truth.episode, truth.episode) for truth in train.truths if truth.episode in names]
    by_time: dict[Hashable, list[Truth]] = defaultdict(list)
    for truth in test.truths:
        by_time[_times(truth)].append(truth)
    for truth in train.truths:
        both += [
            (truth.episode, other.episode)
            for other in by_time[_times(truth)]
            if truth.episode != other.episode and _same_content(train, truth.episode, test, other.episode)
        ]
    if both:
        mine, theirs = both[0]
        raise DataError(
            f"{len(both)} episodes of {train.name} are also in {test.name} (first: {mine}"
            f"{'' if mine == theirs else f', there called {theirs}'}), so methods would be tested on what they learned "
            "from; train on a dataset that shares none"
        )


def _times(truth: Truth) -> Hashable:
    return truth.app, truth.view_start_ns, truth.reference_end_ns


def _same_content(train: DatasetSource, mine: str, test: DatasetSource, theirs: str) -> bool:
    """Compare telemetry; what is behind a URL is taken for the same when it has the same times."""
    if train.url is not None or test.url is not None:
        return True
    return _content(train, mine) == _content(test, theirs)


def _content(source: DatasetSource, episode: str) -> str:
    """Digest of the metric samples, spans and log lines of an episode, without its name."""
    view = EpisodeView(source.folder / EPISODES / episode)
    digest = hashlib.sha256()
    for name, columns in (
        ("metrics", ["time", "service", "metric", "value"]),
        ("spans", ["time", "span_id"]),
        ("logs", ["time", "message"]),
    ):
        table = view.table(name, columns)
        plain = pa.schema(
            [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
        )
        for batch in table.cast(plain).combine_chunks().to_batches():
            for row in zip(*(column.to_pylist() for column in _numbers(batch)), strict=True):
                digest.update(repr(row).encode())
    return digest.hexdigest()


def _numbers(batch: pa.RecordBatch) -> list[pa.Array]:
    """Columns of a batch, times as integers: they are finer than what Python's own times hold."""
    return [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
