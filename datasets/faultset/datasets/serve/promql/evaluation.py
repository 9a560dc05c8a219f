"""Evaluate PromQL expressions over the series of an episode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import promql_parser as parser

from faultset.datasets.metrics.series import sample_text
from faultset.datasets.serve.promql.series import (
    MIN_SAMPLES,
    NAME,
    NEVER_MS,
    WINDOW_FUNCTIONS,
    Floats,
    Ints,
    LabelMatcher,
    QueryError,
    SampledSeries,
    SeriesSet,
    SlidingWindows,
    quantile,
)
from faultset.datasets.serve.promql.vectors import (
    AGGREGATIONS,
    ELEMENTWISE,
    Matching,
    Value,
    Vector,
    aggregate,
    combine,
    group_key,
    histogram_quantile,
    join_labels,
    mark_absent,
    replace_label,
    round_values,
    select_extreme,
    to_scalar,
    unique,
    without,
)

LOOKBACK_MS = 300_000
MAX_CELLS = 20_000_000
"""Maximum number of values that a selector may yield (series times steps), a few hundred megabytes."""
_DEFAULT_SUBQUERY_STEP_MS = 60_000
_SIGNS = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}


@dataclass(frozen=True, kw_only=True)
class Query:
    """The series of an episode, the [steps] times at which to evaluate, and the current time, which hides later
    samples.
    """

    series: SeriesSet
    times_ms: Ints
    now_ms: int


@lru_cache(maxsize=256)
def _parse(expression: str) -> parser.Expr:
    try:
        return parser.parse(expression)
    except ValueError as error:
        raise QueryError(f"invalid PromQL ({' '.join(str(error).split())[:200]}); correct the query") from None


def evaluate(expression: str, query: Query) -> Value | list[SampledSeries] | str:
    """Return the value of an expression: a vector, a scalar [steps], a string, or the samples of a range selector."""
    node = _unwrap(_parse(expression))
    if isinstance(node, parser.StringLiteral):
        return node.val
    if isinstance(node, parser.MatrixSelector | parser.SubqueryExpr):
        if len(query.times_ms) != 1:
            raise QueryError("a range query cannot return ranges such as x[5m]; wrap the range in rate(...)")
        window = _evaluate_range(node, query)
        return _cut_series(window.series, int(window.ends_ms[0]) - window.length_ms, int(window.ends_ms[0]))
    return _evaluate(node, query)


def read_matchers(selector: str) -> list[LabelMatcher]:
    """Return the conditions of a selector such as `up{job="api"}`; raise QueryError if it is invalid."""
    node = _unwrap(_parse(selector))
    if not isinstance(node, parser.VectorSelector):
        raise QueryError(f'"{selector}" must be a selector such as up{{job="api"}}')
    return _list_matchers(node)


def _cut_series(series: Sequence[SampledSeries], start_ms: int, end_ms: int) -> list[SampledSeries]:
    cut = []
    for item in series:
        first = int(np.searchsorted(item.times_ms, start_ms, side="right"))
        stop = int(np.searchsorted(item.times_ms, end_ms, side="right"))
        if stop > first:
            rows = slice(first, stop)
            cut.append(
                replace(item, times_ms=item.times_ms[rows], values=item.values[rows], stale_ms=item.stale_ms[rows])
            )
    return cut


def _unwrap(node: parser.Expr) -> parser.Expr:
    while isinstance(node, parser.ParenExpr):
        node = node.expr
    return node


def _evaluate(node: parser.Expr, query: Query) -> Value:
    node = _unwrap(node)
    if isinstance(node, parser.NumberLiteral):
        return np.full(len(query.times_ms), float(node.val))
    if isinstance(node, parser.VectorSelector):
        return _select_instant(node, query)[0]
    if isinstance(node, parser.UnaryExpr):
        value = _evaluate(node.expr, query)
        return value.map(np.negative) if isinstance(value, Vector) else -value
    if isinstance(node, parser.BinaryExpr):
        return combine(
            str(node.op), _evaluate(node.lhs, query), _evaluate(node.rhs, query), _read_matching(node.modifier)
        )
    if isinstance(node, parser.AggregateExpr):
        return _aggregate(node, query)
    if isinstance(node, parser.Call):
        return _evaluate_call(node, query)
    raise QueryError("a range such as x[5m] is only valid as the argument of a function; wrap it in rate(...)")


def _evaluate_vector(node: parser.Expr, query: Query) -> Vector:
    """Return the value of an expression that the parser has checked to be a vector."""
    value = _evaluate(node, query)
    assert isinstance(value, Vector)
    return value


def _evaluate_scalar(node: Any, query: Query) -> Floats:
    """Return the value of an expression that the parser has checked to be a scalar."""
    value = _evaluate(node, query)
    assert not isinstance(value, Vector)
    return value


def _get_text(node: parser.Expr) -> str:
    node = _unwrap(node)
    assert isinstance(node, parser.StringLiteral)
    return node.val


def _list_matchers(node: parser.VectorSelector) -> list[LabelMatcher]:
    if node.matchers.or_matchers:
        raise QueryError('"or" between label matchers is not supported; use a regular expression')
    matchers = [LabelMatcher(item.name, _get_sign(item.op), item.value) for item in node.matchers.matchers]
    return [*matchers, LabelMatcher(NAME, "=", node.name)] if node.name else matchers


def _get_sign(operation: Any) -> str:
    return _SIGNS[str(operation).rpartition(".")[2]]


def _shift_times(node: Any, query: Query) -> Ints:
    """Return the evaluation times after the modifiers `@` and `offset`."""
    times_ms = query.times_ms
    if node.at is not None:
        kind = str(node.at.type).rpartition(".")[2]
        if kind == "At":
            at_ms = round(1e3 * node.at.at.timestamp())
        else:
            at_ms = int(times_ms[0] if kind == "Start" else times_ms[-1])
        times_ms = np.full(len(times_ms), at_ms)
    return times_ms - _milliseconds(node.offset)


def _milliseconds(duration: timedelta | None) -> int:
    return 0 if duration is None else round(duration / timedelta(milliseconds=1))


def _select_instant(node: parser.VectorSelector, query: Query) -> tuple[Vector, Ints]:
    """Return the current value of each series at each step, and the [rows, steps] times of these samples."""
    times_ms = _shift_times(node, query)
    selected = query.series.select(_list_matchers(node), query.now_ms)
    _check_size(len(selected), len(times_ms))
    labels, values, present, sampled = [], [], [], []
    for item in selected:
        index = np.searchsorted(item.times_ms, times_ms, side="right") - 1
        sample_ms = item.times_ms[index]
        is_current = (index >= 0) & (times_ms - sample_ms < LOOKBACK_MS) & (times_ms < item.stale_ms[index])
        if is_current.any():
            labels.append(item.labels)
            values.append(item.values[index])
            present.append(is_current)
            sampled.append(sample_ms)
    vector = Vector.stack(labels, values, present, len(times_ms))
    return vector, np.array(sampled, dtype=np.int64).reshape(vector.values.shape)


def _check_size(series: int, steps: int) -> None:
    if series * steps > MAX_CELLS:
        raise QueryError(
            f"the query needs {series} series at {steps} steps, more than {MAX_CELLS} values; select fewer series or "
            "a longer step",
            "execution",
        )


@dataclass(frozen=True, kw_only=True)
class _Range:
    """The series of a range selector or subquery, and the ends of its windows."""

    series: Sequence[SampledSeries]
    ends_ms: Ints
    length_ms: int


def _evaluate_range(node: parser.Expr, query: Query) -> _Range:
    node = _unwrap(node)
    if isinstance(node, parser.MatrixSelector):
        selector = node.vector_selector
        selected = query.series.select(_list_matchers(selector), query.now_ms)
        return _Range(series=selected, ends_ms=_shift_times(selector, query), length_ms=_milliseconds(node.range))
    if isinstance(node, parser.SubqueryExpr):
        return _evaluate_subquery(node, query)
    raise QueryError(f'"{node.prettify()}" must be a range such as x[5m]; add the length of the window')


def _evaluate_subquery(node: parser.SubqueryExpr, query: Query) -> _Range:
    """Evaluate a subquery at the multiples of its step; every result row becomes a series."""
    ends_ms, length_ms = _shift_times(node, query), _milliseconds(node.range)
    step_ms = _milliseconds(node.step) or _DEFAULT_SUBQUERY_STEP_MS
    first = (int(ends_ms.min()) - length_ms) // step_ms + 1
    grid_ms = step_ms * np.arange(first, int(ends_ms.max()) // step_ms + 1, dtype=np.int64)
    _check_size(1, len(grid_ms))
    value = _evaluate(node.expr, replace(query, times_ms=grid_ms))
    if not isinstance(value, Vector):
        value = Vector.of_scalar(value)
    series = [
        SampledSeries(
            labels=labels, times_ms=grid_ms[shown], values=values[shown], stale_ms=np.full(int(shown.sum()), NEVER_MS)
        )
        for labels, values, shown in zip(value.labels, value.values, value.present, strict=True)
    ]
    return _Range(series=series, ends_ms=ends_ms, length_ms=length_ms)


def _evaluate_windows(node: parser.Call, query: Query) -> Vector:
    name = node.func.name
    *parameters, last = node.args
    window = _evaluate_range(last, query)
    _check_size(len(window.series), len(query.times_ms))
    level = _evaluate_scalar(parameters[0], query) if parameters else None
    labels, values, present = [], [], []
    for item in window.series:
        windows = SlidingWindows.cut(item, window.ends_ms, window.length_ms)
        filled = windows.counts >= MIN_SAMPLES.get(name, 1)
        if not filled.any():
            continue
        if level is not None:
            result = windows.reduce(lambda samples: quantile(samples, float(level[0])))
        else:
            result = WINDOW_FUNCTIONS[name](windows)
        labels.append(item.labels if name == "last_over_time" else without(item.labels, (NAME,)))
        values.append(result)
        present.append(filled)
    return unique(Vector.stack(labels, values, present, len(query.times_ms)))


def _aggregate(node: parser.AggregateExpr, query: Query) -> Vector:
    operation = str(node.op)
    vector = _evaluate_vector(node.expr, query)
    is_without = node.modifier is not None and str(node.modifier.type).endswith("Without")
    key = group_key(list(node.modifier.labels) if node.modifier is not None else [], is_without=is_without)
    if operation in ("topk", "bottomk"):
        return select_extreme(vector, key, _evaluate_scalar(node.param, query), largest=operation == "topk")
    if operation == "quantile":
        return aggregate(vector, operation, key, _evaluate_scalar(node.param, query))
    if operation not in AGGREGATIONS:
        supported = ", ".join([*AGGREGATIONS, "topk", "bottomk", "quantile"])
        raise QueryError(f'the aggregation "{operation}" is not supported; use one of {supported}')
    return aggregate(vector, operation, key, None)


def _read_matching(modifier: parser.BinModifier | None) -> Matching:
    if modifier is None:
        return Matching()
    card = str(modifier.card).rpartition(".")[2]
    matching = modifier.matching
    return Matching(
        names=tuple(matching.labels) if matching is not None else (),
        is_on=matching is not None and str(matching.type).endswith("Include"),
        many={"ManyToOne": "left", "OneToMany": "right"}.get(card, ""),
        included=tuple(modifier.group_labels or ()),
        returns_bool=modifier.return_bool,
    )


_Function = Callable[[Sequence[Any], Query], Value]


def _evaluate_call(node: parser.Call, query: Query) -> Value:
    name, arguments = node.func.name, node.args
    if name in WINDOW_FUNCTIONS or name == "quantile_over_time":
        return _evaluate_windows(node, query)
    if name in ELEMENTWISE:
        return _evaluate_vector(arguments[0], query).map(ELEMENTWISE[name])
    function = _FUNCTIONS.get(name)
    if function is None:
        raise QueryError(f'the function "{name}" is not supported; use one of {", ".join(FUNCTIONS)}')
    return function(arguments, query)


def _time(arguments: Sequence[Any], query: Query) -> Value:
    return query.times_ms / 1e3


def _timestamp(arguments: Sequence[Any], query: Query) -> Value:
    node = _unwrap(arguments[0])
    if isinstance(node, parser.VectorSelector):
        vector, sampled_ms = _select_instant(node, query)
        vector = replace(vector, values=sampled_ms / 1e3)
    else:
        vector = _evaluate_vector(node, query)
        vector = replace(vector, values=np.broadcast_to(query.times_ms / 1e3, vector.values.shape))
    return vector.map(lambda values: values)


def _to_vector(arguments: Sequence[Any], query: Query) -> Value:
    return Vector.of_scalar(_evaluate_scalar(arguments[0], query))


def _absent(arguments: Sequence[Any], query: Query) -> Value:
    node = _unwrap(arguments[0])
    equal = _list_matchers(node) if isinstance(node, parser.VectorSelector) else []
    return mark_absent(
        _evaluate_vector(node, query), {item.name: item.value for item in equal if item.sign == "=" and item.value}
    )


def _clamp(arguments: Sequence[Any], query: Query, *, low: int | None, high: int | None) -> Value:
    minimum = -np.inf if low is None else _evaluate_scalar(arguments[low], query)
    maximum = np.inf if high is None else _evaluate_scalar(arguments[high], query)
    return _evaluate_vector(arguments[0], query).map(lambda values: np.maximum(minimum, np.minimum(maximum, values)))


def _round(arguments: Sequence[Any], query: Query) -> Value:
    nearest = _evaluate_scalar(arguments[1], query) if len(arguments) > 1 else 1.0
    return _evaluate_vector(arguments[0], query).map(lambda values: round_values(values, nearest))


def _sort(arguments: Sequence[Any], query: Query, *, descending: bool) -> Value:
    """Sort the rows by value; in a range query, rows have several values and keep their order."""
    vector = _evaluate_vector(arguments[0], query)
    if len(query.times_ms) != 1:
        return vector
    shown = vector.values[:, 0]
    return vector.pick(np.argsort(-shown if descending else shown, kind="stable"))


_FUNCTIONS: Mapping[str, _Function] = {
    "time": _time,
    "timestamp": _timestamp,
    "vector": _to_vector,
    "scalar": lambda arguments, query: to_scalar(_evaluate_vector(arguments[0], query)),
    "absent": _absent,
    "clamp": lambda arguments, query: _clamp(arguments, query, low=1, high=2),
    "clamp_min": lambda arguments, query: _clamp(arguments, query, low=1, high=None),
    "clamp_max": lambda arguments, query: _clamp(arguments, query, low=None, high=1),
    "round": _round,
    "sort": lambda arguments, query: _sort(arguments, query, descending=False),
    "sort_desc": lambda arguments, query: _sort(arguments, query, descending=True),
    "histogram_quantile": lambda arguments, query: histogram_quantile(
        _evaluate_scalar(arguments[0], query), _evaluate_vector(arguments[1], query)
    ),
    "label_replace": lambda arguments, query: replace_label(
        _evaluate_vector(arguments[0], query), *(_get_text(argument) for argument in arguments[1:5])
    ),
    "label_join": lambda arguments, query: join_labels(
        _evaluate_vector(arguments[0], query),
        _get_text(arguments[1]),
        _get_text(arguments[2]),
        [_get_text(argument) for argument in arguments[3:]],
    ),
}
FUNCTIONS = tuple(sorted([*_FUNCTIONS, *ELEMENTWISE, *WINDOW_FUNCTIONS, "quantile_over_time"]))
"""Names of the supported functions."""


MAX_STEPS = 11_000
"""Maximum number of steps of a range query, as in Prometheus."""


def answer_instant(query: str, series: SeriesSet, at_ms: int, now_ms: int) -> dict[str, Any]:
    """Return the data of an instant query at `at_ms`, milliseconds since 1970; samples after `now_ms` are hidden."""
    value = evaluate(query, Query(series=series, times_ms=np.array([at_ms], dtype=np.int64), now_ms=now_ms))
    if isinstance(value, str):
        return {"resultType": "string", "result": [at_ms / 1e3, value]}
    if isinstance(value, list):
        result = [{"metric": dict(item.labels), "values": _pairs(item.times_ms / 1e3, item.values)} for item in value]
        return {"resultType": "matrix", "result": result}
    if isinstance(value, Vector):
        rows = zip(value.labels, value.values[:, 0], value.present[:, 0], strict=True)
        result = [
            {"metric": dict(labels), "value": [at_ms / 1e3, sample_text(sample)]}
            for labels, sample, shown in rows
            if shown
        ]
        return {"resultType": "vector", "result": result}
    return {"resultType": "scalar", "result": [at_ms / 1e3, sample_text(value[0])]}


def answer_range(
    query: str, series: SeriesSet, start_ms: int, end_ms: int, step_ms: int, now_ms: int
) -> dict[str, Any]:
    """Return the data of a range query; see `answer_instant`."""
    if step_ms <= 0:
        raise QueryError('"step" must be at least a millisecond, for example 15s')
    if end_ms < start_ms:
        raise QueryError('"end" must not be before "start"; give a later time')
    steps = (end_ms - start_ms) // step_ms + 1
    if steps > MAX_STEPS:
        raise QueryError(f'the query has {steps} steps, but at most {MAX_STEPS} are allowed; increase "step"')
    times_ms = start_ms + step_ms * np.arange(steps, dtype=np.int64)
    value = evaluate(query, Query(series=series, times_ms=times_ms, now_ms=now_ms))
    if isinstance(value, str | list):
        raise QueryError("a range query must yield a number for each step, not text or ranges; use an instant query")
    if not isinstance(value, Vector):
        value = Vector.of_scalar(value)
    seconds = times_ms / 1e3
    rows = zip(value.labels, value.values, value.present, strict=True)
    result = [
        {"metric": dict(labels), "values": _pairs(seconds[shown], samples[shown])}
        for labels, samples, shown in sorted(rows, key=lambda row: row[0])
        if shown.any()
    ]
    return {"resultType": "matrix", "result": result}


def _pairs(seconds: Iterable[float], values: Iterable[float]) -> list[list[Any]]:
    return [[float(second), sample_text(value)] for second, value in zip(seconds, values, strict=True)]
