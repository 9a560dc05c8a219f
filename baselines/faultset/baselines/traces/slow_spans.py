"""Spans as PDiagnose looks at them: time that an operation spends itself, and whether that is more than
usual."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from faultset.baselines.stats.scaling import Matrix

Ints = npt.NDArray[np.int64]
SD_FLOOR = 0.05


def exclusive_durations(starts_ns: Ints, durations_ns: Ints, parents: Ints) -> Matrix:
    """Duration of each span minus the time covered by its children.

    Parameters
    ----------
    parents
        Row of each span's parent, or -1 where the parent is not there.

    Returns
    -------
    ndarray
        Nanoseconds. Children that overlap are not subtracted twice, and only where they lie within the
        parent.
    """
    own = durations_ns.astype(float)
    children = np.flatnonzero(parents >= 0)
    if len(children) == 0:
        return own
    owner = parents[children]
    lower, upper = starts_ns[owner], starts_ns[owner] + durations_ns[owner]
    begin = np.clip(starts_ns[children], lower, upper)
    end = np.clip(starts_ns[children] + durations_ns[children], lower, upper)
    order = np.lexsort([begin, owner])
    owner, begin, end = owner[order], begin[order], end[order]
    # Families are laid out one after the other on a common axis, so that one running maximum serves them all.
    family = np.cumsum(np.diff(owner, prepend=owner[0]) != 0)
    offset = family * (int(durations_ns.max()) + 1) - starts_ns[owner]
    begin, end = begin + offset, end + offset
    reached = np.maximum.accumulate(end)
    before = np.concatenate([begin[:1], reached[:-1]])
    covered = np.maximum(0, end - np.maximum(begin, before))
    return np.asarray(own - np.bincount(owner, weights=covered, minlength=len(own)), dtype=float)


def parent_rows(trace_ids: npt.NDArray, span_ids: npt.NDArray, parent_ids: npt.NDArray) -> Ints:
    """Row of each span's parent within the same trace; -1 for roots and for parents that were not
    recorded."""
    import pandas as pd

    keys = pd.MultiIndex.from_arrays([trace_ids, span_ids])
    first = ~keys.duplicated()
    known = pd.Series(np.flatnonzero(first), index=keys[first])
    wanted = pd.MultiIndex.from_arrays([trace_ids, parent_ids])
    return known.reindex(wanted, fill_value=-1).to_numpy(dtype=np.int64)


def slow_spans(
    groups: Ints, durations: Matrix, reference: npt.NDArray[np.bool_], *, sigmas: float = 3.0
) -> npt.NDArray[np.bool_]:
    """Spans longer than mean + `sigmas` sd of the same group in the reference.

    The spread is at least five percent of the mean; a group that the reference does not have is never slow.
    """
    count = int(groups.max()) + 1 if len(groups) else 0
    there = groups[reference]
    lines = np.maximum(np.bincount(there, minlength=count), 1)
    mean = np.bincount(there, weights=durations[reference], minlength=count) / lines
    squares = np.bincount(there, weights=(durations[reference] - mean[there]) ** 2, minlength=count)
    sd = np.maximum(np.sqrt(squares / np.maximum(lines - 1, 1)), SD_FLOOR * mean)
    limit = np.where(np.bincount(there, minlength=count) > 0, mean + sigmas * sd, np.inf)
    return durations > limit[groups]
