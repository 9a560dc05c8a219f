"""PromQL functions of instant vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from faultset.datasets.serve.promql.series import NAME, Floats, Labels, QueryError
from faultset.datasets.serve.promql.vectors import Flags, Vector, group_rows, only, unique, without

BUCKET = "le"

ELEMENTWISE: Mapping[str, Callable[[Floats], Floats]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "ln": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sgn": np.sign,
}
"""Functions that are applied to each value of a vector."""


def histogram_quantile(level: Floats, buckets: Vector) -> Vector:
    """Return a quantile of each histogram, interpolated within its buckets as in Prometheus.

    Parameters
    ----------
    level
        [steps] from 0 to 1.
    buckets
        Cumulative buckets with the label `le`.
    """
    usable = [row for row, labels in enumerate(buckets.labels) if _get_bound(labels) is not None]
    buckets = buckets.pick(usable)
    labels, values, present = [], [], []
    for group, rows in group_rows(buckets.labels, lambda pairs: without(pairs, (BUCKET, NAME))).items():
        bounds = np.array([_get_bound(buckets.labels[row]) for row in rows], dtype=float)
        order = np.argsort(bounds, kind="stable")
        bounds, counts, shown = bounds[order], buckets.values[rows][order], buckets.present[rows][order]
        labels.append(group)
        present.append(shown.any(axis=0))
        columns = zip(level, counts.T, shown.T, strict=True)
        values.append(np.array([_quantile_of(each, bounds[mask], column[mask]) for each, column, mask in columns]))
    return Vector.stack(labels, values, present, len(level))


def _get_bound(labels: Labels) -> float | None:
    try:
        return float(dict(labels)[BUCKET])
    except (KeyError, ValueError):
        return None


def _quantile_of(level: float, bounds: Floats, counts: Floats) -> float:
    if np.isnan(level) or len(bounds) < 2 or not np.isposinf(bounds[-1]):
        return np.nan
    if not 0 <= level <= 1:
        return -np.inf if level < 0 else np.inf
    bounds, first = np.unique(bounds, return_index=True)
    counts = np.maximum.accumulate(np.add.reduceat(counts, first))
    total = counts[-1]
    if len(bounds) < 2 or not total > 0:
        return np.nan
    rank = level * total
    bucket = int(np.searchsorted(counts[:-1], rank))
    if bucket == len(bounds) - 1:
        return float(bounds[-2])
    if bucket == 0 and bounds[0] <= 0:
        return float(bounds[0])
    start, before = (bounds[bucket - 1], counts[bucket - 1]) if bucket else (0.0, 0.0)
    inside = counts[bucket] - before
    return float(start + (bounds[bucket] - start) * ((rank - before) / inside if inside else 0.0))


def replace_label(vector: Vector, target: str, replacement: str, source: str, pattern: str) -> Vector:
    """Set the label `target` of rows whose label `source` matches a regular expression.

    The replacement may refer to the groups of the expression, as in `$1`.
    """
    try:
        compiled = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise QueryError(f'the regular expression "{pattern}" is invalid ({error}); correct it') from None
    template = re.sub(r"\$\{?(\w+)\}?", r"\\g<\1>", replacement.replace("\\", r"\\"))
    labels = []
    for pairs in vector.labels:
        match = compiled.fullmatch(dict(pairs).get(source, ""))
        labels.append(pairs if match is None else _set_label(pairs, target, match.expand(template)))
    return unique(Vector(labels=labels, values=vector.values, present=vector.present))


def join_labels(vector: Vector, target: str, separator: str, sources: list[str]) -> Vector:
    """Set the label `target` to the joined values of other labels."""
    labels = [
        _set_label(pairs, target, separator.join(dict(pairs).get(source, "") for source in sources))
        for pairs in vector.labels
    ]
    return unique(Vector(labels=labels, values=vector.values, present=vector.present))


def _set_label(labels: Labels, name: str, value: str) -> Labels:
    others = dict(without(labels, (name,)))
    return tuple(sorted((others | ({name: value} if value else {})).items()))


def mark_absent(vector: Vector, matchers: Mapping[str, str]) -> Vector:
    """Return 1 at the steps at which a vector is empty, with the labels that its selector requires."""
    present: Flags = ~np.any(vector.present, axis=0)
    labels = tuple(sorted((name, value) for name, value in matchers.items() if name != NAME))
    return Vector(labels=[labels], values=np.ones((1, len(present))), present=present[None, :])


def to_scalar(vector: Vector) -> Floats:
    """Return the only value of each step, NaN at steps without exactly one."""
    is_alone = vector.present.sum(axis=0) == 1
    return np.where(is_alone, np.where(vector.present, vector.values, 0.0).sum(axis=0), np.nan)


def group_key(names: list[str], *, is_without: bool) -> Callable[[Labels], Labels]:
    """Return the function from labels to the group of an aggregation."""
    if is_without:
        return lambda labels: without(labels, (*names, NAME))
    return lambda labels: only(labels, names)


def round_values(values: Floats, nearest: Any) -> Floats:
    """Return values rounded to multiples of `nearest`; halves are rounded up."""
    return np.floor(values / nearest + 0.5) * nearest
