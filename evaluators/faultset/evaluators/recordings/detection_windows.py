"""Divide recordings into detection windows, in which a detector scores every step after a healthy reference.

A detector gets a view with a healthy reference at its start and scores each step from earlier steps only. A recording
is therefore divided into consecutive views. A view ends when a new reference is available: after an incident, once the
system has been healthy for the length of a reference; otherwise after five such lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from faultset.core.times import SECOND_NS
from faultset.datasets.format.recordings import Stretch
from faultset.datasets.recordings.cuts import Cut
from faultset.datasets.recordings.recording import Recording

MIN_REFERENCE_S, MIN_REFERENCE_STEPS = 120.0, 24
"""Minimum length of a reference, in seconds and in sampling steps; both must hold."""
WINDOW_REFERENCES = 5
"""A window of a healthy system lasts this many lengths of its reference."""


def choose_reference_ns(recording: Recording[Any]) -> int:
    """Return the length of the references of a recording in nanoseconds."""
    return round(max(MIN_REFERENCE_S, MIN_REFERENCE_STEPS * recording.context.sampling_step_s) * SECOND_NS)


@dataclass(frozen=True, kw_only=True)
class DetectionWindow:
    """A view of a recording: a healthy reference, and the time in which a detector may raise alarms."""

    recording: str
    reference_start_ns: int
    start_ns: int
    """End of the reference, from which alarms count."""
    end_ns: int
    healthy: bool
    """Whether no incident overlaps it, so that detectors may learn from it."""

    @property
    def cut(self) -> Cut:
        """The view, as an episode."""
        return Cut(start_ns=self.reference_start_ns, end_ns=self.end_ns, reference_end_ns=self.start_ns)

    @property
    def episode(self) -> str:
        """Id of the view as an episode."""
        return self.cut.episode_id(self.recording)


def plan_detection_windows(recording: Recording[Any], stretches: Sequence[Stretch]) -> Iterator[DetectionWindow]:
    """Yield the windows of tested stretches of a recording in time order.

    The time before the first reference of a segment is not watched.
    """
    length_ns = choose_reference_ns(recording)
    healthy = recording.truth.healthy_stretches
    for tested in _divide_at_gaps(recording, stretches):
        starts = [
            start_ns
            for stretch in healthy
            if (inside := stretch.within(tested.start_ns, tested.end_ns)) is not None
            for start_ns in range(inside.start_ns + length_ns, inside.end_ns + 1, WINDOW_REFERENCES * length_ns)
            if start_ns < tested.end_ns
        ]
        for start_ns, end_ns in pairwise([*starts, tested.end_ns]):
            yield DetectionWindow(
                recording=recording.id,
                reference_start_ns=start_ns - length_ns,
                start_ns=start_ns,
                end_ns=end_ns,
                healthy=any(stretch.start_ns <= start_ns and end_ns <= stretch.end_ns for stretch in healthy),
            )


def plan_training_windows(recording: Recording[Any], stretches: Sequence[Stretch]) -> Iterator[DetectionWindow]:
    """Yield healthy views of training stretches, from which detectors learn.

    A view is at least as long as a reference. Its reference has the usual length, but at most half of the view's.
    """
    length_ns = choose_reference_ns(recording)
    for training in _divide_at_gaps(recording, stretches):
        for healthy in recording.truth.healthy_stretches:
            inside = healthy.within(training.start_ns, training.end_ns)
            if inside is None:
                continue
            for view_start_ns in range(inside.start_ns, inside.end_ns - length_ns + 1, WINDOW_REFERENCES * length_ns):
                end_ns = min(view_start_ns + (WINDOW_REFERENCES + 1) * length_ns, inside.end_ns)
                yield DetectionWindow(
                    recording=recording.id,
                    reference_start_ns=view_start_ns,
                    start_ns=view_start_ns + min(length_ns, (end_ns - view_start_ns) // 2),
                    end_ns=end_ns,
                    healthy=True,
                )


def _divide_at_gaps(recording: Recording[Any], stretches: Sequence[Stretch]) -> list[Stretch]:
    """Return the parts of stretches of a recording that have telemetry without a gap, in time order."""
    pieces = [
        segment.within(stretch.start_ns, stretch.end_ns)
        for stretch in sorted(stretches)
        if stretch.recording == recording.id
        for segment in recording.view.segments
    ]
    return [piece for piece in pieces if piece is not None]
