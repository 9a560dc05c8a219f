"""Binary operators of PromQL between scalars and vectors, with matching of labels."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from faultset.datasets.serve.promql.series import NAME, Floats, Labels, QueryError
from faultset.datasets.serve.promql.vectors import Vector, drop_names, format_labels, group_rows, only, unique, without

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

    Attributes
    ----------
    names
        Labels to match on, or to ignore.
    is_on
        Whether only the labels `names` are compared, rather than all other labels.
    many
        Side with several rows per match: "left", "right" or "" for none.
    included
        Labels to copy from the side with one row.
    returns_bool
        Whether a comparison returns 0 or 1 instead of filtering.
    """

    names: Sequence[str] = ()
    is_on: bool = False
    many: str = ""
    included: Sequence[str] = ()
    returns_bool: bool = False

    def key(self, labels: Labels) -> Labels:
        """Return the labels that must be equal."""
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
