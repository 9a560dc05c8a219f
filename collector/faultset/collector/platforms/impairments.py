"""Impairments of a pod's network and how their intensity varies over time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from faultset.collector.ipc.channel import Message
from faultset.core.times import SECOND_NS

Schedule = Literal["constant", "gradual", "intermittent", "delayed"]
"""How a fault's intensity varies: constant, growing, on and off, or starting after a delay."""
LONGEST_RISE_S = 90.0


@dataclass(frozen=True, kw_only=True)
class FaultInterval:
    """A period in which a fault acts; its intensity changes linearly from the first to the last value."""

    begin_ns: int
    end_ns: int
    first_intensity: float
    last_intensity: float


@dataclass(frozen=True, kw_only=True)
class Course(Message):
    """The intensity of a fault over time, from 0 to 1.

    Attributes
    ----------
    rise_s
        Time to grow from 0 to 1; 0 to start at full intensity.
    on_s, off_s
        Lengths of alternating active and inactive periods; always active if one is 0.
    delay_s
        Inactive period at the start.
    """

    rise_s: float = 0.0
    on_s: float = 0.0
    off_s: float = 0.0
    delay_s: float = 0.0

    @property
    def is_intermittent(self) -> bool:
        """Whether the fault alternates between active and inactive."""
        return bool(self.on_s and self.off_s)

    @property
    def changes(self) -> bool:
        """Whether the intensity varies."""
        return bool(self.rise_s or self.delay_s or self.is_intermittent)

    def intensity_at(self, elapsed_s: float) -> float:
        """Return the intensity `elapsed_s` seconds after the start.

        >>> Course(rise_s=10.0).intensity_at(5.0)
        0.5
        """
        after_delay_s = elapsed_s - self.delay_s
        if after_delay_s < 0 or (self.is_intermittent and after_delay_s % (self.on_s + self.off_s) >= self.on_s):
            return 0.0
        return self._rise(after_delay_s)

    def intervals(self, begin_ns: int, end_ns: int) -> Iterator[FaultInterval]:
        """Yield the active periods between the start and end of a fault; a period is split where the rise ends.

        >>> [round((period.end_ns - period.begin_ns) / 1e9) for period in Course(on_s=3, off_s=2).intervals(0, 10**10)]
        [3, 3]
        """
        begin_ns += round(self.delay_s * SECOND_NS)
        total_s = max(0.0, (end_ns - begin_ns) / SECOND_NS)
        periods = [(0.0, total_s)] if total_s else []
        if self.is_intermittent:
            cycle_s = self.on_s + self.off_s
            periods = [
                (number * cycle_s, min(number * cycle_s + self.on_s, total_s))
                for number in range(int(total_s // cycle_s) + 1)
                if number * cycle_s < total_s
            ]
        for start_s, end_s in periods:
            boundaries = [start_s, *([self.rise_s] if start_s < self.rise_s < end_s else []), end_s]
            for first_s, last_s in pairwise(boundaries):
                yield FaultInterval(
                    begin_ns=begin_ns + round(first_s * SECOND_NS),
                    end_ns=begin_ns + round(last_s * SECOND_NS),
                    first_intensity=self._rise(first_s),
                    last_intensity=self._rise(last_s),
                )

    def _rise(self, elapsed_s: float) -> float:
        return min(1.0, elapsed_s / self.rise_s) if self.rise_s else 1.0

    def as_parameters(self) -> dict[str, float]:
        """Return the nonzero fields as parameters of a fault."""
        return {name: getattr(self, name) for name in COURSE_PARAMETERS if getattr(self, name)}


COURSE_PARAMETERS = tuple(field.name for field in fields(Course))


def parse_course(parameters: Mapping[str, Any]) -> Course:
    """Return the intensity over time that a fault's parameters describe."""
    return Course(**{name: float(parameters[name]) for name in COURSE_PARAMETERS if name in parameters})


def draw_course(schedule: Schedule, fault_s: float, rng: np.random.Generator) -> Course:
    """Draw the intensity over time of a fault that lasts about `fault_s` seconds."""
    match schedule:
        case "gradual":
            return Course(rise_s=round(min(LONGEST_RISE_S, float(rng.uniform(0.3, 0.7)) * fault_s), 1))
        case "intermittent":
            return Course(on_s=round(float(rng.uniform(3, 8)), 1), off_s=round(float(rng.uniform(2, 6)), 1))
        case "delayed":
            return Course(delay_s=round(float(rng.uniform(0.1, 0.3)) * fault_s, 1))
        case "constant":
            return Course()


@dataclass(frozen=True, kw_only=True)
class Loss(Course):
    """Drop a share of a pod's outgoing packets."""

    probability: float


@dataclass(frozen=True, kw_only=True)
class Delay(Course):
    """Delay all outgoing packets of a pod."""

    latency_s: float
    jitter_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Partition(Course):
    """Drop all packets to and from a pod while the intensity is above 0."""


@dataclass(frozen=True, kw_only=True)
class Bandwidth(Course):
    """Limit a pod's outgoing bytes per second while the intensity is above 0; the rest is queued."""

    bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class _RequestImpairment(Course):
    """Impair a share of the HTTP requests to a pod.

    Attributes
    ----------
    caller
        Impair only requests from this service; empty for all.
    path
        Impair only requests to this path; empty for all.
    """

    share: float
    caller: str = ""
    path: str = ""

    def share_at(self, elapsed_s: float) -> float:
        """Return the impaired share `elapsed_s` seconds after the start.

        >>> Abort(share=0.4, rise_s=10.0).share_at(5.0)
        0.2
        """
        return self.share * self.intensity_at(elapsed_s)


@dataclass(frozen=True, kw_only=True)
class Abort(_RequestImpairment):
    """Respond to requests with status 503 before they reach the pod."""

    act: Literal["abort"] = "abort"


@dataclass(frozen=True, kw_only=True)
class Reset(_RequestImpairment):
    """Close the connection when a request starts, before it reaches the pod."""

    act: Literal["reset"] = "reset"


@dataclass(frozen=True, kw_only=True)
class Hold(_RequestImpairment):
    """Delay requests before they reach the pod."""

    latency_s: float


Impairment = Loss | Delay | Partition | Bandwidth | Abort | Reset | Hold


def encode_impairment(impairment: Impairment) -> dict[str, Any]:
    """Return an impairment in the format of the relay, the node agent and the journal.

    >>> encode_impairment(Loss(probability=0.1))
    {'kind': 'loss', 'probability': 0.1}
    """
    values = dataclasses.asdict(impairment)
    nonzero = {name: value for name, value in values.items() if value or name not in COURSE_PARAMETERS}
    return {"kind": type(impairment).__name__.lower(), **nonzero}
