"""Windows of episodes and recordings, as arrays or streamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from faultset.core.errors import UsageError
from faultset.core.times import SECOND_NS
from faultset.datasets.format.recordings import Stretch, remove_intervals
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.recordings.window_view import WindowView
from faultset.datasets.training.columns import FeatureColumns
from faultset.datasets.training.features import Ints, Mask, StepFeatures, Values, step_count, step_features
from faultset.datasets.training.folds import episode_labels

if TYPE_CHECKING:
    from faultset.datasets.dataset import Dataset
    from faultset.datasets.views import EpisodeView


Section = Literal["view", "reference", "later"]
"""view: the whole view; reference: its healthy reference; later: the time after it, where methods are scored."""
UNKNOWN = -1
_WHOLE_EPISODE = 1 << 40


@dataclass(frozen=True, kw_only=True)
class WindowBatch:
    """Some windows: the inputs `values` and `mask`, and the truth."""

    values: Values
    """[B, L, D] float32; 0 where the mask is false."""
    mask: Mask
    """[B, L, D] whether a feature has a value."""
    ends_ns: Ints
    """[B] end of the last step, the `time` of a score in a prediction file. Not an input."""
    episodes: tuple[str, ...]
    """[B] ids of the episodes."""
    labels: npt.NDArray[np.int8]
    """[B, L] 1 for a step that ended after the onset, 0 before it or if there is no fault, -1 if the onset is unknown.

    In windows per service, it is 1 only for services that are correct answers.
    """
    groups: Ints
    """[B] group: position in `EpisodeWindows.clusters`, or of the recording; never divide a group between training and
    test.
    """
    services: tuple[str, ...] = ()
    """[B] service of each window; empty unless columns are per service."""

    def __len__(self) -> int:
        return len(self.values)


class EpisodeWindows:
    """Windows of episodes as arrays, as a sequence, or as a stream of batches.

    Windows do not cross the end of a section or an episode. With `FeatureColumns.per_service`, there are windows for
    each service of an episode. Only the features of one episode are in memory at a time, except for `arrays`.

    Parameters
    ----------
    dataset
        An opened dataset.
    episodes
        Ids, for instance `fold.healthy_train` of `dataset_folds`.
    columns
        The features, chosen from training episodes.
    length, stride
        Steps in a window, and steps from the start of a window to the next.
    section
        "view", "reference" or "later". The references of fault episodes are also healthy training data.

    Attributes
    ----------
    clusters
        (application, fault, targets) of each group.

    Raises
    ------
    UsageError
        A length is invalid, or no episode is long enough for a window.

    Examples
    --------
    >>> from faultset.datasets import open_dataset
    >>> from faultset.datasets.training import dataset_folds
    >>> dataset = open_dataset("sample")
    >>> fold = dataset_folds(dataset)[0]
    >>> train = [*fold.healthy_train, *fold.faulty_train]
    >>> columns = FeatureColumns.per_service(step_s=5, modalities=("logs",))
    >>> X, y, groups = EpisodeWindows(dataset, train, columns, length=4).arrays()
    >>> len(X) == len(y) == len(groups), X.shape[1] == 4 * len(columns)
    (True, True)
    """

    def __init__(
        self,
        dataset: Dataset,
        episodes: Sequence[str],
        columns: FeatureColumns,
        *,
        length: int = 32,
        stride: int = 1,
        section: Section = "view",
    ) -> None:
        if length < 1 or stride < 1:
            raise UsageError(f"`length` and `stride` must be at least 1, got {length} and {stride}")
        self.columns, self.length, self.stride, self.section = columns, length, stride, section
        self.episodes = tuple(episodes)
        self._dataset = dataset
        self._labels = episode_labels(dataset, self.episodes)
        self.clusters = tuple(dict.fromkeys(self._labels[episode].cluster for episode in self.episodes))
        self._group = {cluster: number for number, cluster in enumerate(self.clusters)}
        self._starts = {episode: self._window_starts(dataset.view(episode)) for episode in self.episodes}
        services = {episode: dataset.view(episode).services if columns.is_per_service else () for episode in episodes}
        self._services: dict[str, tuple[str, ...]] = services
        counts = [len(self._starts[episode]) * max(1, len(services[episode])) for episode in self.episodes]
        self._first = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._last: tuple[str, StepFeatures] | None = None
        if not len(self):
            raise UsageError(
                f"a window has {length} steps of {columns.step_s} s, but the section `{section}` of all "
                f"{len(self.episodes)} episodes is shorter; choose a smaller length"
            )

    def __len__(self) -> int:
        return int(self._first[-1])

    def __getitem__(self, number: int) -> WindowBatch:
        """Return a window as a batch of one; consecutive windows are fast, because they share an episode."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"window {number} of {len(self)}")
        number %= len(self)
        position = int(np.searchsorted(self._first, number, side="right")) - 1
        return self._batch(self.episodes[position], [int(number - self._first[position])])

    def batches(self, size: int = 64, *, seed: int | None = None) -> Iterator[WindowBatch]:
        """Yield all windows once, in batches of one episode each.

        Parameters
        ----------
        size
            Maximum number of windows in a batch; the last batch of an episode may be smaller.
        seed
            Seed for shuffling the episodes and the windows of each; by default they are yielded in order.
        """
        rng = None if seed is None else np.random.default_rng(seed)
        order = range(len(self.episodes)) if rng is None else rng.permutation(len(self.episodes)).tolist()
        for position in order:
            yield from self.episode_batches(self.episodes[position], size, rng)

    def episode_batches(
        self, episode: str, size: int = 64, rng: np.random.Generator | None = None
    ) -> Iterator[WindowBatch]:
        """Yield the windows of an episode, at most `size` at a time; `rng` shuffles them."""
        position = self.episodes.index(episode)
        count = int(self._first[position + 1] - self._first[position])
        numbers = list(range(count)) if rng is None else rng.permutation(count).tolist()
        for first in range(0, count, size):
            yield self._batch(episode, numbers[first : first + size])

    def arrays(self, *, max_bytes: int = 4 << 30) -> tuple[Values, npt.NDArray[np.int8], Ints]:
        """Return `X`, `y` and `groups` in the order and shapes that scikit-learn expects.

        Parameters
        ----------
        max_bytes
            Refuse larger arrays.

        Returns
        -------
        X : ndarray
            [N, L * D] a row per window, with the features of all steps; 0 for missing values.
        y : ndarray
            [N] 1 if a step of the window ended after the onset, otherwise 0. Windows with an unknown onset are left
            out.
        groups : ndarray
            [N] groups that must not be divided between training and test, for `GroupKFold`.

        Raises
        ------
        UsageError
            The arrays would be larger than `max_bytes`.
        """
        width = self.length * len(self.columns)
        if len(self) * width * 4 > max_bytes:
            raise UsageError(
                f"{len(self)} windows of {self.length} steps and {len(self.columns)} columns take "
                f"{len(self) * width * 4 / 1e9:.1f} GB, more than the limit of {max_bytes / 1e9:.1f} GB; use a larger "
                "stride, fewer roles or FeatureColumns.per_service, iterate over batches(), or raise max_bytes"
            )
        inputs = np.empty((len(self), width), dtype=np.float32)
        labels, groups = np.empty(len(self), dtype=np.int8), np.empty(len(self), dtype=np.int64)
        count = 0
        for batch in self.batches(_WHOLE_EPISODE):
            rows = slice(count, count + len(batch))
            inputs[rows] = batch.values.reshape(len(batch), width)
            labels[rows] = np.where(batch.labels.min(axis=1) == UNKNOWN, UNKNOWN, batch.labels.max(axis=1))
            groups[rows] = batch.groups
            count += len(batch)
        certain = labels != UNKNOWN
        return (inputs, labels, groups) if certain.all() else (inputs[certain], labels[certain], groups[certain])

    def _batch(self, episode: str, numbers: Sequence[int]) -> WindowBatch:
        features = self._features(episode)
        owners, starts = np.divmod(np.asarray(numbers, dtype=np.int64), len(self._starts[episode]))
        rows = self._starts[episode][starts][:, None] + np.arange(self.length)
        cells = (rows, owners[:, None]) if self.columns.is_per_service else (rows,)
        services = tuple(features.services[owner] for owner in owners) if features.services else ()
        label = self._labels[episode]
        steps = features.ends_ns[rows]
        if not label.faulty:
            labels = np.zeros(rows.shape, dtype=np.int8)
        elif label.onset_ns is None:
            labels = np.full(rows.shape, UNKNOWN, dtype=np.int8)
        else:
            labels = (steps > label.onset_ns).astype(np.int8)
        if services:
            labels[[service not in label.causes for service in services]] = 0
        return WindowBatch(
            values=features.values[cells],
            mask=features.mask[cells],
            ends_ns=steps[:, -1],
            episodes=(episode,) * len(rows),
            labels=labels,
            groups=np.full(len(rows), self._group[label.cluster], dtype=np.int64),
            services=services,
        )

    def _features(self, episode: str) -> StepFeatures:
        if self._last is None or self._last[0] != episode:
            self._last = None  # frees its memory first
            self._last = (episode, step_features(self._dataset.view(episode), self.columns))
        return self._last[1]

    def _window_starts(self, view: EpisodeView) -> Ints:
        step_ns = round(self.columns.step_s * SECOND_NS)
        start_ns, split_ns = view.reference
        steps = step_count(view, self.columns.step_s)
        whole = (split_ns - start_ns) // step_ns
        first, last = {"view": (0, steps), "reference": (0, whole), "later": (whole, steps)}[self.section]
        return np.arange(first, last - self.length + 1, self.stride, dtype=np.int64)


BLOCK_S = 1800.0
"""Length of the features that are in memory at a time."""


class RecordingWindows:
    """Windows of stretches of recordings, as a stream of batches.

    Void stretches are left out. A step is labelled 1 if it ended during an incident, from its onset until the
    application was healthy again.

    Parameters
    ----------
    recordings
        Recordings, for instance `dataset.recordings()`.
    columns
        The features, for instance `FeatureColumns.of(window_views(...))`. Features per service are not supported.
    stretches
        Stretches to use, for instance `dataset.recording_splits["by-time"].train`; by default all.
    length, stride
        Steps in a window, and steps from the start of a window to the next.
    healthy
        Leave out incidents, to train on healthy data.

    Raises
    ------
    UsageError
        A length is invalid, or no stretch is long enough for a window.
    """

    def __init__(
        self,
        recordings: Sequence[Recording[Any]],
        columns: FeatureColumns,
        stretches: Sequence[Stretch] | None = None,
        *,
        length: int = 32,
        stride: int = 1,
        healthy: bool = False,
    ) -> None:
        if length < 1 or stride < 1:
            raise UsageError(f"`length` and `stride` must be at least 1, got {length} and {stride}")
        if columns.is_per_service:
            raise UsageError("columns per service need a healthy reference; use FeatureColumns.of for recordings")
        self.columns, self.length, self.stride = columns, length, stride
        self._step_ns = round(columns.step_s * SECOND_NS)
        self._recordings = {recording.id: recording for recording in recordings}
        self.stretches: tuple[Stretch, ...] = tuple(
            piece
            for recording in recordings
            for piece in usable_stretches(recording, stretches, healthy=healthy)
            if piece.end_ns - piece.start_ns >= length * self._step_ns
        )
        """Stretches without a gap, a void stretch or the end of a split."""
        if not self.stretches:
            raise UsageError(
                f"a window has {length} steps of {columns.step_s:g} s, but all stretches are shorter; choose a smaller "
                "length"
            )

    def __len__(self) -> int:
        return sum(len(self._starts(stretch)) for stretch in self.stretches)

    def _starts(self, stretch: Stretch) -> range:
        steps = (stretch.end_ns - stretch.start_ns) // self._step_ns
        return range(0, steps - self.length + 1, self.stride)

    def batches(self, size: int = 64, *, seed: int | None = None) -> Iterator[WindowBatch]:
        """Yield all windows once, in batches of one block each.

        Parameters
        ----------
        size
            Maximum number of windows in a batch.
        seed
            Seed for shuffling the blocks and the windows of each; by default they are yielded in time order.
        """
        rng = None if seed is None else np.random.default_rng(seed)
        blocks = [block for stretch in self.stretches for block in self._blocks(stretch)]
        order = range(len(blocks)) if rng is None else rng.permutation(len(blocks)).tolist()
        for position in order:
            block, starts = blocks[position]
            features = step_features(WindowView(self._recordings[block.recording].view, block), self.columns)
            numbers = np.asarray(starts) if rng is None else rng.permutation(np.asarray(starts))
            for first in range(0, len(numbers), size):
                yield self._batch(block, features, numbers[first : first + size])

    def arrays(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8], Ints]:
        """Return all windows as `X` [N, L * D], `y` [N] and the end of each window in UTC nanoseconds [N]."""
        batches = list(self.batches(1 << 40))
        values = np.concatenate([batch.values.reshape(len(batch), -1) for batch in batches])
        labels = np.concatenate([batch.labels.max(axis=1) for batch in batches])
        return values, labels, np.concatenate([batch.ends_ns for batch in batches])

    def _blocks(self, stretch: Stretch) -> Iterator[tuple[Stretch, list[int]]]:
        """Divide a stretch into blocks that overlap by a window; yield each with the starts of its windows."""
        starts = self._starts(stretch)
        count = max(1, round(BLOCK_S * SECOND_NS) // self._step_ns // self.stride)
        for first in range(0, len(starts), count):
            block_starts = starts[first : first + count]
            start_ns = stretch.start_ns + block_starts[0] * self._step_ns
            end_ns = stretch.start_ns + (block_starts[-1] + self.length) * self._step_ns
            yield Stretch(stretch.recording, start_ns, end_ns), [start - block_starts[0] for start in block_starts]

    def _batch(self, block: Stretch, features: StepFeatures, starts: npt.NDArray[Any]) -> WindowBatch:
        rows = starts[:, None] + np.arange(self.length)
        ends_ns = features.ends_ns[rows]
        labels = np.zeros(rows.shape, dtype=np.int8)
        truth = self._recordings[block.recording].truth
        for incident in truth.incidents:
            start_ns, end_ns = truth.bounds(incident)
            labels[(ends_ns > start_ns) & (ends_ns <= end_ns)] = 1
        group = [*self._recordings].index(block.recording)
        return WindowBatch(
            values=features.values[rows],
            mask=features.mask[rows],
            ends_ns=ends_ns[:, -1],
            episodes=(block.recording,) * len(rows),
            labels=labels,
            groups=np.full(len(rows), group, dtype=np.int64),
        )


def usable_stretches(
    recording: Recording[Any], stretches: Sequence[Stretch] | None = None, *, healthy: bool = False
) -> list[Stretch]:
    """Return the stretches of a recording without gaps, void stretches and, if `healthy`, incidents."""
    truth = recording.truth
    voids = [(void.start_ns, void.end_ns) for void in truth.void_stretches]
    usable = truth.healthy_stretches if healthy else remove_intervals(recording.view.segments, voids)
    chosen = [Stretch(recording.id, *recording.view.window)] if stretches is None else stretches
    return [
        piece
        for stretch in chosen
        if stretch.recording == recording.id
        for span in usable
        if (piece := span.within(stretch.start_ns, stretch.end_ns)) is not None
    ]
