"""Windows of recordings, streamed block by block; none crosses the end of a split or of a segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from faultset.core.errors import UsageError
from faultset.core.times import SECOND_NS
from faultset.datasets.format.stretches import Stretch, remove_intervals
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.recordings.window_view import WindowView
from faultset.datasets.training.columns import FeatureColumns
from faultset.datasets.training.features import Ints, StepFeatures, step_features
from faultset.datasets.training.windows import WindowBatch

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
        Leave out incidents, for training on health.

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
        """Return the steps at which windows of a stretch start."""
        steps = (stretch.end_ns - stretch.start_ns) // self._step_ns
        return range(0, steps - self.length + 1, self.stride)

    def batches(self, size: int = 64, *, seed: int | None = None) -> Iterator[WindowBatch]:
        """Yield all windows once, in batches of one block each.

        Parameters
        ----------
        size
            Maximum number of windows in a batch.
        seed
            Seed to shuffle the blocks and the windows of each; without it they come in time order.
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
    """Return the stretches of a recording that can be used, without gaps and void stretches.

    Parameters
    ----------
    stretches
        Stretches to choose from, for instance of a split; by default the whole recording.
    healthy
        Leave out incidents.
    """
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
