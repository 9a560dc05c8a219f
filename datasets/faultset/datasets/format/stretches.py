"""Stretches of time in recordings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from faultset.datasets.format.schemas import EpisodeId, TimeNs

Interval = tuple[int, int]


class Stretch(NamedTuple):
    """A half-open interval of a recording, UTC nanoseconds."""

    recording: EpisodeId
    start_ns: TimeNs
    end_ns: TimeNs

    @property
    def length_s(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9

    def overlaps(self, start_ns: int, end_ns: int) -> bool:
        """Return whether the stretch overlaps an interval."""
        return self.start_ns < end_ns and start_ns < self.end_ns

    def within(self, start_ns: int, end_ns: int) -> Stretch | None:
        """Return the part inside an interval; None if there is none."""
        start_ns, end_ns = max(start_ns, self.start_ns), min(end_ns, self.end_ns)
        return Stretch(self.recording, start_ns, end_ns) if start_ns < end_ns else None


def remove_intervals(stretches: Iterable[Stretch], removed: Iterable[Interval]) -> list[Stretch]:
    """Return the parts of stretches outside all of the intervals."""
    removed = list(removed)
    return [
        Stretch(stretch.recording, *interval)
        for stretch in stretches
        for interval in subtract_intervals([(stretch.start_ns, stretch.end_ns)], removed)
    ]


def subtract_intervals(intervals: Iterable[Interval], removed: Iterable[Interval]) -> list[Interval]:
    """Return the parts of half-open intervals outside all of the removed ones.

    >>> subtract_intervals([(0, 10)], [(2, 3), (8, 20)])
    [(0, 2), (3, 8)]
    """
    rest = list(intervals)
    for start, end in removed:
        rest = [
            piece
            for a, b in rest
            for piece in ([(a, min(b, start)), (max(a, end), b)] if a < end and start < b else [(a, b)])
            if piece[0] < piece[1]
        ]
    return rest


def find_time_at(share: float, stretches: Sequence[Stretch]) -> int:
    """Return the time by which a share of the telemetry in consecutive stretches had been recorded."""
    rest_ns = round(share * sum(stretch.end_ns - stretch.start_ns for stretch in stretches))
    for stretch in stretches:
        if rest_ns < stretch.end_ns - stretch.start_ns:
            return stretch.start_ns + rest_ns
        rest_ns -= stretch.end_ns - stretch.start_ns
    return stretches[-1].end_ns


def skip_intervals(time_ns: int, intervals: Iterable[Interval]) -> int:
    """Return the first time from `time_ns` on that is outside all of the intervals, which must be sorted."""
    for start_ns, end_ns in intervals:
        if start_ns <= time_ns < end_ns:
            time_ns = end_ns
    return time_ns
