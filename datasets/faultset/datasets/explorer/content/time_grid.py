"""The steps of the time axis that everything in an episode is counted on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from faultset.core.times import SECOND_NS
from faultset.datasets.format.context import EpisodeContext

MOST_STEPS = 480
"""More than a screen has room for."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TimeGrid:
    """Equal steps over a view."""

    start_ns: int
    """Start of the view, UTC nanoseconds."""
    step_s: float
    """Length of a step in seconds."""
    steps: int
    """Number of steps."""

    @classmethod
    def of(cls, context: EpisodeContext) -> TimeGrid:
        """Return a grid of whole sampling intervals, with at most `MOST_STEPS` steps."""
        seconds = (context.view_end_ns - context.view_start_ns) / SECOND_NS
        sampling = context.sampling_step_s
        step_s = sampling * max(1, math.ceil(seconds / sampling / MOST_STEPS))
        return cls(start_ns=context.view_start_ns, step_s=step_s, steps=max(1, math.ceil(seconds / step_s)))

    def cells(self, times_ns: Ints) -> Ints:
        """Return the step of every time; times outside of the view go to its first or last step."""
        found = (times_ns - self.start_ns) // round(self.step_s * SECOND_NS)
        return np.clip(found, 0, self.steps - 1)

    def counts(self, times_ns: Ints) -> list[int]:
        """Count times by step."""
        return np.bincount(self.cells(times_ns), minlength=self.steps).tolist()

    def seconds(self, time_ns: int | None) -> float | None:
        """Return a time as seconds since the start of the view."""
        return None if time_ns is None else round((time_ns - self.start_ns) / SECOND_NS, 3)


def rounded(values: npt.NDArray[np.float64], digits: int = 4) -> list[float | None]:
    """Return numbers with a few significant digits, fit for JSON: what is no finite number is None."""
    finite = np.isfinite(values)
    safe = np.where(finite & (values != 0), np.abs(values), 1.0)
    scale = 10.0 ** np.clip(digits - 1 - np.floor(np.log10(safe)), -300, 300)
    with np.errstate(over="ignore", invalid="ignore"):
        short = np.round(values * scale) / scale
    short = np.where(np.isfinite(short), short, values)
    return [
        (int(value) if value == int(value) and abs(value) < 1e15 else value) if keep else None
        for value, keep in zip(short.tolist(), finite.tolist(), strict=True)
    ]
