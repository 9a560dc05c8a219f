"""Stretches of time in recordings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from faultset.datasets.format.schemas import EpisodeId, TimeNs


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
        """Return whether it shares time with an interval."""
        return self.start_ns < end_ns and start_ns < self.end_ns

    def within(self, start_ns: int, end_ns: int) -> Stretch | None:
        """Return what of it is in an interval; None if nothing is."""
        start_ns, end_ns = max(start_ns, self.start_ns), min(end_ns, self.end_ns)
        return Stretch(self.recording, start_ns, end_ns) if start_ns < end_ns else None


def without(stretches: Iterable[Stretch], removed: Iterable[tuple[int, int]]) -> list[Stretch]:
    """Return stretches without some intervals.

    >>> [(start, end) for _, start, end in without([Stretch("r", 0, 10)], [(2, 3), (8, 20)])]
    [(0, 2), (3, 8)]
    """
    rest = list(stretches)
    for start_ns, end_ns in removed:
        pieces = []
        for stretch in rest:
            if not stretch.overlaps(start_ns, end_ns):
                pieces.append(stretch)
                continue
            sides = (stretch.within(stretch.start_ns, start_ns), stretch.within(end_ns, stretch.end_ns))
            pieces += [side for side in sides if side is not None]
        rest = pieces
    return rest
