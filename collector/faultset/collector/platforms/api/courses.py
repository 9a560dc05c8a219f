"""The course of a fault: how strongly it acts over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from faultset.collector.ipc.messages import Message
from faultset.core.times import SECOND_NS


@dataclass(frozen=True, kw_only=True)
class FaultInterval:
    """A time in which a fault acts, with the share of its full strength at both ends; in between it is linear."""

    begin_ns: int
    end_ns: int
    first_intensity: float
    last_intensity: float


@dataclass(frozen=True, kw_only=True)
class Course(Message):
    """How strongly a fault acts, from its beginning on.

    Attributes
    ----------
    rise_s
        Time over which it grows from nothing to its full strength; at once when zero.
    on_s, off_s
        How long it comes and goes; it stays when one of them is zero.
    """

    rise_s: float = 0.0
    on_s: float = 0.0
    off_s: float = 0.0

    @property
    def comes_and_goes(self) -> bool:
        """Whether there are times without it after its beginning."""
        return bool(self.on_s and self.off_s)

    def intensity_at(self, elapsed_s: float) -> float:
        """Return the share of its full strength so many seconds after its beginning.

        >>> Course(rise_s=10.0).intensity_at(5.0)
        0.5
        """
        if self.comes_and_goes and elapsed_s % (self.on_s + self.off_s) >= self.on_s:
            return 0.0
        return min(1.0, elapsed_s / self.rise_s) if self.rise_s else 1.0

    def intervals(self, begin_ns: int, end_ns: int) -> Iterator[FaultInterval]:
        """Yield the times in which it acts, from its beginning to its end.

        >>> [round((one.end_ns - one.begin_ns) / 1e9) for one in Course(on_s=3, off_s=2).intervals(0, 10**10)]
        [3, 3]
        """
        whole_s = (end_ns - begin_ns) / SECOND_NS
        times = [(0.0, whole_s)]
        if self.comes_and_goes:
            cycle_s = self.on_s + self.off_s
            times = [
                (number * cycle_s, min(number * cycle_s + self.on_s, whole_s))
                for number in range(int(whole_s // cycle_s) + 1)
                if number * cycle_s < whole_s
            ]
        for first_s, last_s in times:
            ends = [first_s, *([self.rise_s] if first_s < self.rise_s < last_s else []), last_s]
            for from_s, to_s in pairwise(ends):
                yield FaultInterval(
                    begin_ns=begin_ns + round(from_s * SECOND_NS),
                    end_ns=begin_ns + round(to_s * SECOND_NS),
                    first_intensity=self._strength(from_s),
                    last_intensity=self._strength(to_s),
                )

    def _strength(self, elapsed_s: float) -> float:
        return min(1.0, elapsed_s / self.rise_s) if self.rise_s else 1.0


COURSE_PARAMETERS = tuple(field.name for field in fields(Course))


def course_of(parameters: Mapping[str, Any]) -> Course:
    """Return the course that the parameters of a fault say."""
    return Course(**{name: float(parameters[name]) for name in COURSE_PARAMETERS if name in parameters})
