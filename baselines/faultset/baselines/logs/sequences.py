"""Log anomaly scores: how much of what a system writes was not to be expected.

A stand-in for DeepLog that needs neither a GPU nor many lines: which template follows is predicted by
counts of what followed before, and numeric parameters are held against their reference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from faultset.baselines.stats.scaling import Matrix, mean_and_sd

Ints = npt.NDArray[np.int64]


class NextTemplate:
    """Predict the next log template from the last few, with shorter memory where the longer has seen nothing.

    Parameters
    ----------
    order
        Templates that are looked back on, at most.
    top
        Candidates that count as predicted; at most half of the known templates, so that not everything does.
    halve
        Whether `top` is so limited.
    """

    def __init__(self, *, order: int = 3, top: int = 9, halve: bool = True) -> None:
        self.order = order
        self.top = top
        self.halve = halve

    def fit(self, templates: Sequence[int]) -> NextTemplate:
        """Learn from one healthy sequence of template ids."""
        sequence = list(templates)
        counts: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for length in range(1, self.order + 1):
            windows = zip(*(sequence[shift:] for shift in range(length + 1)), strict=False)
            for window, times in Counter(windows).items():
                counts[window[:-1]][window[-1]] += times
        top = min(self.top, max(1, len(set(sequence)) // 2)) if self.halve else self.top
        self.likely_ = {
            context: frozenset(sorted(follow, key=lambda template: (-follow[template], template))[:top])
            for context, follow in counts.items()
        }
        self.last_ = tuple(sequence[-self.order :])
        return self

    def misses(self, templates: Sequence[int], after: Sequence[int] | None = None) -> npt.NDArray[np.bool_]:
        """Tell which templates were not expected; the sequence follows on `after`, or on what was learned.

        A line after a context that was never seen, at any length, is unexpected too.
        """
        before = tuple(self.last_ if after is None else after)
        sequence = [*before, *templates]
        verdicts = np.ones(len(templates), dtype=bool)
        remembered: dict[tuple[int, ...], frozenset[int] | None] = {}
        for position in range(len(before), len(sequence)):
            context = tuple(sequence[max(0, position - self.order) : position])
            if context not in remembered:
                shorter = (context[cut:] for cut in range(len(context)))
                remembered[context] = next((self.likely_[c] for c in shorter if c in self.likely_), None)
            likely = remembered[context]
            verdicts[position - len(before)] = likely is None or sequence[position] not in likely
        return verdicts


def parameter_anomalies(
    templates: Ints,
    services: Ints,
    times_ns: Ints,
    numbers: Sequence[Sequence[float]],
    healthy: npt.NDArray[np.bool_],
    *,
    sigmas: float = 3.0,
) -> tuple[npt.NDArray[np.bool_], bool]:
    """Tell which lines carry a parameter, or come after a pause, far from what their template had when healthy.

    Returns the verdict per line, and whether any line has a numeric parameter at all.
    """
    counts = np.array([len(found) for found in numbers], dtype=np.int64)
    anomalous = np.zeros(len(templates), dtype=bool)
    keys = np.stack([services, templates, counts], axis=1)
    order = np.lexsort([np.arange(len(templates)), counts, templates, services])
    borders = np.flatnonzero((np.diff(keys[order], axis=0) != 0).any(axis=1)) + 1
    for rows in np.split(order, borders) if len(order) else []:
        pause = np.diff(times_ns[rows], prepend=times_ns[rows[0]]).astype(float)[:, None]
        pause[0] = np.nan
        values = np.array([numbers[row] for row in rows], dtype=float).reshape(len(rows), -1)
        vector = np.hstack([pause, values])
        reference = vector[healthy[rows]]
        if len(reference) < 2:
            continue
        mean, sd = mean_and_sd(reference)
        with np.errstate(invalid="ignore"):
            anomalous[rows] = (np.abs(vector - mean) > sigmas * sd).any(axis=1)
    return anomalous, bool(counts.any())


def binned_share(bins: Ints, verdicts: npt.NDArray[np.bool_], count: int) -> Matrix:
    """Share of true verdicts among the lines of each bin; 0 for an empty bin."""
    lines = np.bincount(bins, minlength=count)[:count]
    return np.bincount(bins, weights=verdicts, minlength=count)[:count] / np.maximum(lines, 1)


def combined_score(template_share: Matrix, parameter_share: Matrix, weight: float = 0.5) -> Matrix:
    """Anomaly score of a bin from its share of unexpected templates and of odd parameters."""
    return weight * template_share + (1 - weight) * parameter_share
