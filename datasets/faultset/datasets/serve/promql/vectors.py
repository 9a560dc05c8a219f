"""Instant vectors over all steps of a query: aggregation, operators and functions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from faultset.datasets.serve.promql.series import NAME, Floats, Labels, QueryError, quantile

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Vector:
    """Values [rows, steps] of series at every step of a query; `present` marks values, which may be NaN."""

    labels: list[Labels]
    values: Floats
    present: Flags

    @classmethod
    def empty(cls, steps: int) -> Vector:
        return cls(labels=[], values=np.zeros((0, steps)), present=np.zeros((0, steps), dtype=bool))

    @classmethod
    def of_scalar(cls, values: Floats) -> Vector:
        """Return a vector with one row without labels."""
        return cls(labels=[()], values=values[None, :], present=np.ones((1, len(values)), dtype=bool))

    @classmethod
    def stack(cls, labels: list[Labels], values: list[Floats], present: list[Flags], steps: int) -> Vector:
        if not labels:
            return cls.empty(steps)
        return cls(labels=labels, values=np.stack(values), present=np.stack(present))

    def map(self, function: Callable[[Floats], Floats]) -> Vector:
        """Return the vector with changed values, without metric names."""
        with np.errstate(all="ignore"):
            return unique(Vector(labels=drop_names(self.labels), values=function(self.values), present=self.present))

    def pick(self, rows: Sequence[int] | npt.NDArray[np.int64]) -> Vector:
        chosen = np.asarray(rows, dtype=np.int64)
        return Vector(
            labels=[self.labels[row] for row in chosen], values=self.values[chosen], present=self.present[chosen]
        )


def without(labels: Labels, names: Sequence[str]) -> Labels:
    return tuple(pair for pair in labels if pair[0] not in names)


def only(labels: Labels, names: Sequence[str]) -> Labels:
    return tuple(pair for pair in labels if pair[0] in names)


def drop_names(labels: Sequence[Labels]) -> list[Labels]:
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
    """Aggregate the rows of each group `key`; `parameter` [steps] is the level of `quantile`."""
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


Value = Vector | Floats
"""A vector, or a scalar as an array [steps]."""

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
SET_OPERATORS = ("and", "or", "unless")


@dataclass(frozen=True, kw_only=True)
class Matching:
    """How the rows of two vectors are matched.

    Labels other than `names` must be equal, or only `names` if `is_on`. `many` is the side with several rows per match
    ("left" or "right"), and `included` are the labels to copy from the other side. If `returns_bool`, a comparison
    returns 0 or 1 instead of filtering.
    """

    names: Sequence[str] = ()
    is_on: bool = False
    many: str = ""
    included: Sequence[str] = ()
    returns_bool: bool = False

    def key(self, labels: Labels) -> Labels:
        return only(labels, self.names) if self.is_on else without(labels, (*self.names, NAME))


def combine(symbol: str, left: Value, right: Value, matching: Matching) -> Value:
    """Apply a binary operator; its operands must have suitable types. Raise QueryError if rows cannot be matched."""
    with np.errstate(all="ignore"):
        if isinstance(left, Vector) and isinstance(right, Vector):
            combine_rows = _combine_sets if symbol in SET_OPERATORS else _combine_vectors
            return combine_rows(symbol, left, right, matching)
        if isinstance(left, Vector):
            return _combine_scalar(symbol, left, left.values, right, left.values, matching)
        if isinstance(right, Vector):
            return _combine_scalar(symbol, right, left, right.values, right.values, matching)
        return np.asarray((ARITHMETIC | COMPARISONS)[symbol](left, right), dtype=float)


def _combine_scalar(symbol: str, vector: Vector, left: Any, right: Any, shown: Floats, matching: Matching) -> Vector:
    if symbol in ARITHMETIC:
        result = ARITHMETIC[symbol](left, right)
        return unique(Vector(labels=drop_names(vector.labels), values=result, present=vector.present))
    holds = COMPARISONS[symbol](left, right)
    if matching.returns_bool:
        return unique(Vector(labels=drop_names(vector.labels), values=holds.astype(float), present=vector.present))
    return Vector(labels=vector.labels, values=shown, present=vector.present & holds)


def _combine_vectors(symbol: str, left: Vector, right: Vector, matching: Matching) -> Vector:
    many, single = (right, left) if matching.many == "right" else (left, right)
    partners = _single_rows(single, matching)
    keys = [matching.key(labels) for labels in many.labels]
    rows = [row for row, key in enumerate(keys) if key in partners]
    if not rows:
        return Vector.empty(left.values.shape[1])
    many_side = many.pick(rows)
    merged = Vector.stack(
        [partners[keys[row]][0] for row in rows],
        [partners[keys[row]][1] for row in rows],
        [partners[keys[row]][2] for row in rows],
        left.values.shape[1],
    )
    if not matching.many:
        _refuse_several([keys[row] for row in rows], many_side)
    first, second = (merged, many_side) if matching.many == "right" else (many_side, merged)
    present = many_side.present & merged.present
    keeps_name = symbol in COMPARISONS and not matching.returns_bool
    if symbol in ARITHMETIC:
        values = ARITHMETIC[symbol](first.values, second.values)
    else:
        holds = COMPARISONS[symbol](first.values, second.values)
        values = holds.astype(float) if matching.returns_bool else first.values
        present = present if matching.returns_bool else present & holds
    labels = [
        _result_labels(many_side.labels[row], merged.labels[row], matching, keeps_name) for row in range(len(rows))
    ]
    return unique(Vector(labels=labels, values=values, present=present))


def _single_rows(vector: Vector, matching: Matching) -> dict[Labels, tuple[Labels, Any, Any]]:
    """Return the labels, values and presence by match key; two rows of a key must not have values at the same step."""
    side = "left" if matching.many == "right" else "right"
    single = {}
    for key, rows in group_rows(vector.labels, matching.key).items():
        values, present = vector.values[rows], vector.present[rows]
        if bool((present.sum(axis=0) > 1).any()):
            raise QueryError(
                f"several series on the {side} side match {format_labels(key)}; match more labels with on(...), or use "
                "group_left or group_right",
                "execution",
            )
        single[key] = (
            vector.labels[rows[-1]],
            np.where(present, values, 0.0).sum(axis=0),
            present.any(axis=0),
        )
    return single


def _refuse_several(keys: Sequence[Labels], vector: Vector) -> None:
    for key, rows in group_rows(keys, lambda labels: labels).items():
        if bool((vector.present[rows].sum(axis=0) > 1).any()):
            raise QueryError(
                f"several series on the left side match {format_labels(key)}; add group_left for many-to-one matching",
                "execution",
            )


def _result_labels(many: Labels, single: Labels, matching: Matching, keeps_name: bool) -> Labels:
    labels = many if keeps_name else without(many, (NAME,))
    if not matching.many:
        return only(labels, matching.names) if matching.is_on else without(labels, matching.names)
    copied = {name: value for name, value in single if name in matching.included}
    return tuple(sorted((dict(without(labels, matching.included)) | copied).items()))


def _combine_sets(symbol: str, left: Vector, right: Vector, matching: Matching) -> Vector:
    shown = {key: right.present[rows].any(axis=0) for key, rows in group_rows(right.labels, matching.key).items()}
    steps = left.values.shape[1]
    nothing = np.zeros(steps, dtype=bool)
    if symbol == "or":
        covered = {key: left.present[rows].any(axis=0) for key, rows in group_rows(left.labels, matching.key).items()}
        others = [~covered.get(matching.key(labels), nothing) for labels in right.labels]
        present = right.present & np.array(others) if others else right.present
        return unique(
            Vector(
                labels=left.labels + right.labels,
                values=np.concatenate([left.values, right.values]),
                present=np.concatenate([left.present, present]),
            )
        )
    masks = [shown.get(matching.key(labels), nothing) for labels in left.labels]
    mask = np.array(masks) if masks else left.present
    return Vector(labels=left.labels, values=left.values, present=left.present & (mask if symbol == "and" else ~mask))


BUCKET_LABEL = "le"

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
    """Return a quantile of each histogram, interpolated within its buckets as in Prometheus."""
    usable = [row for row, labels in enumerate(buckets.labels) if _get_bound(labels) is not None]
    buckets = buckets.pick(usable)
    labels, values, present = [], [], []
    for group, rows in group_rows(buckets.labels, lambda pairs: without(pairs, (BUCKET_LABEL, NAME))).items():
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
        return float(dict(labels)[BUCKET_LABEL])
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
