"""Instant vectors over all steps of a query: aggregation and matching of labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from faultset.datasets.serve.promql.series import NAME, Floats, Labels, QueryError
from faultset.datasets.serve.promql.windows import quantile

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Vector:
    """Values of several series at every step of a query.

    Attributes
    ----------
    labels
        Labels of each row.
    values
        [rows, steps] values.
    present
        [rows, steps] whether a series has a value; NaN is a value.
    """

    labels: list[Labels]
    values: Floats
    present: Flags

    @classmethod
    def empty(cls, steps: int) -> Vector:
        """Return a vector without rows."""
        return cls(labels=[], values=np.zeros((0, steps)), present=np.zeros((0, steps), dtype=bool))

    @classmethod
    def stack(cls, labels: list[Labels], values: list[Floats], present: list[Flags], steps: int) -> Vector:
        """Return a vector of rows."""
        if not labels:
            return cls.empty(steps)
        return cls(labels=labels, values=np.stack(values), present=np.stack(present))

    def map(self, function: Callable[[Floats], Floats]) -> Vector:
        """Return the vector with changed values, without metric names."""
        with np.errstate(all="ignore"):
            return unique(Vector(labels=drop_names(self.labels), values=function(self.values), present=self.present))

    def pick(self, rows: Sequence[int] | npt.NDArray[np.int64]) -> Vector:
        """Return the given rows in the given order."""
        chosen = np.asarray(rows, dtype=np.int64)
        return Vector(
            labels=[self.labels[row] for row in chosen], values=self.values[chosen], present=self.present[chosen]
        )


def without(labels: Labels, names: Sequence[str]) -> Labels:
    """Return the labels except for the given names."""
    return tuple(pair for pair in labels if pair[0] not in names)


def only(labels: Labels, names: Sequence[str]) -> Labels:
    """Return the labels with the given names."""
    return tuple(pair for pair in labels if pair[0] in names)


def drop_names(labels: Sequence[Labels]) -> list[Labels]:
    """Return labels without metric names."""
    return [without(pairs, (NAME,)) for pairs in labels]


def unique(vector: Vector) -> Vector:
    """Return a vector with one row per label set; raise QueryError if two rows have a value at the same step."""
    if len(set(vector.labels)) == len(vector.labels):
        return vector
    rows: dict[Labels, int] = {}
    labels: list[Labels] = []
    values: list[Floats] = []
    present: list[Flags] = []
    for number, pairs in enumerate(vector.labels):
        row = rows.setdefault(pairs, len(labels))
        if row == len(labels):
            labels.append(pairs)
            values.append(vector.values[number])
            present.append(vector.present[number])
            continue
        if bool((present[row] & vector.present[number]).any()):
            raise QueryError(
                f"several series have the labels {format_labels(pairs)} after this operation; aggregate them, or match "
                "more labels",
                "execution",
            )
        values[row] = np.where(vector.present[number], vector.values[number], values[row])
        present[row] = present[row] | vector.present[number]
    return Vector.stack(labels, values, present, vector.values.shape[1])


def format_labels(labels: Labels) -> str:
    """Return labels in PromQL notation.

    >>> format_labels((("job", "api"),))
    '{job="api"}'
    """
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels) + "}"


def group_rows(labels: Sequence[Labels], key: Callable[[Labels], Labels]) -> dict[Labels, list[int]]:
    """Return the rows of each group, in order of first appearance."""
    groups: dict[Labels, list[int]] = {}
    for row, pairs in enumerate(labels):
        groups.setdefault(key(pairs), []).append(row)
    return groups


def _masked(values: Floats, present: Flags, filler: float) -> Floats:
    return np.where(present, values, filler)


def _mean(values: Floats, present: Flags) -> Floats:
    return _masked(values, present, 0.0).sum(axis=0) / present.sum(axis=0)


def _variance(values: Floats, present: Flags) -> Floats:
    deviations = values - _mean(values, present)
    return _mean(deviations**2, present)


AGGREGATIONS: Mapping[str, Callable[[Floats, Flags], Floats]] = {
    "sum": lambda values, present: _masked(values, present, 0.0).sum(axis=0),
    "avg": _mean,
    "min": lambda values, present: np.fmin.reduce(_masked(values, present, np.nan), axis=0),
    "max": lambda values, present: np.fmax.reduce(_masked(values, present, np.nan), axis=0),
    "count": lambda values, present: present.sum(axis=0).astype(float),
    "group": lambda values, present: np.ones(values.shape[1]),
    "stdvar": _variance,
    "stddev": lambda values, present: np.sqrt(_variance(values, present)),
}


def aggregate(vector: Vector, operation: str, key: Callable[[Labels], Labels], parameter: Floats | None) -> Vector:
    """Aggregate the rows of each group.

    Parameters
    ----------
    operation
        One of `AGGREGATIONS`, or `quantile` with its level as parameter.
    key
        Labels of a row's group.
    parameter
        [steps] scalar argument of the operation, if it has one.
    """
    steps = vector.values.shape[1]
    labels, values, present = [], [], []
    for group, rows in group_rows(vector.labels, key).items():
        inside, shown = vector.values[rows], vector.present[rows]
        with np.errstate(all="ignore"):
            if parameter is not None:
                result = np.array([quantile(inside[shown[:, t], t], parameter[t]) for t in range(steps)])
            else:
                result = AGGREGATIONS[operation](inside, shown)
        labels.append(group)
        values.append(result)
        present.append(shown.any(axis=0))
    return Vector.stack(labels, values, present, steps)


def select_extreme(vector: Vector, key: Callable[[Labels], Labels], counts: Floats, *, largest: bool) -> Vector:
    """Return the rows with the largest or smallest values of each group at each step; NaN comes last.

    If there is only one step, rows are sorted by value.
    """
    present = np.zeros_like(vector.present)
    sign = -1.0 if largest else 1.0
    ranks = _masked(np.where(np.isnan(vector.values), np.inf, sign * vector.values), vector.present, np.inf)
    order: list[int] = []
    for rows in group_rows(vector.labels, key).values():
        members = np.array(rows)
        # rows without a value come after NaN
        sequence = np.lexsort((ranks[members], ~vector.present[members]), axis=0)
        for step, count in enumerate(counts):
            chosen = members[sequence[: max(0, int(count)) if np.isfinite(count) else 0, step]]
            present[chosen, step] = vector.present[chosen, step]
        order += members[sequence[:, 0]].tolist()
    return Vector(labels=vector.labels, values=vector.values, present=present).pick(order)
