"""Whether and when detectors spoke, without the areas under curves, which take most of the time of scoring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from faultset.evaluators.leaderboards.detection_facts import alarms_of
from faultset.evaluators.results.rows import ResultRow, Truth

_S = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Alarmed:
    """What one detector said about one episode; means over seeds where it has several."""

    truth: Truth
    yes: float
    """Share of seeds that alarmed at all; a failed run is the wrong answer."""
    found: float
    """Share of seeds with a true alarm; NaN where the onset is unknown or there is none."""
    delay_s: float
    """Seconds from onset to the first true alarm; +inf for a miss, NaN without an onset; the median over seeds."""

    @property
    def window_s(self) -> float:
        """Length of the fault that was seen."""
        if self.truth.onset_ns is None:
            return math.nan
        return (self.truth.view_end_ns - self.truth.onset_ns) / _S

    @property
    def right(self) -> float:
        """A true alarm in a fault, silence without one."""
        if not self.truth.faulty:
            return 1.0 - self.yes
        return self.yes if math.isnan(self.found) else self.found


def alarmed(rows: Sequence[ResultRow]) -> Alarmed:
    """Put the rows of one detector on one episode, one for each seed, together."""
    truth = rows[0].truth
    each = [_one(row) for row in rows]
    delays = sorted(delay for _, delay in each)
    found = [float(math.isfinite(delay)) for delay in delays]
    return Alarmed(
        truth=truth,
        yes=float(np.mean([yes for yes, _ in each])),
        found=math.nan if truth.onset_ns is None else float(np.mean(found)),
        delay_s=math.nan if truth.onset_ns is None else delays[len(delays) // 2],
    )


def _one(row: ResultRow) -> tuple[float, float]:
    """Return whether it alarmed, and the seconds to the first true alarm."""
    truth = row.truth
    if row.status != "ok":
        return (0.0 if truth.faulty else 1.0), math.inf
    starts = [start for start, _ in alarms_of(row)]
    onset = truth.onset_ns
    true = [start for start in starts if onset is not None and onset <= start <= truth.view_end_ns]
    return float(bool(starts)), (true[0] - (onset or 0)) / _S if true else math.inf
