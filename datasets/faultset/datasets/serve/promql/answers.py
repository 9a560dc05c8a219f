"""Responses to queries in the format of Prometheus' HTTP API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from faultset.datasets.metrics.prometheus_notation import sample_text
from faultset.datasets.serve.promql.evaluation import Query, evaluate
from faultset.datasets.serve.promql.series import QueryError, SeriesSet
from faultset.datasets.serve.promql.vectors import Vector

MAX_STEPS = 11_000
"""Maximum number of steps of a range query, as in Prometheus."""


def answer_instant(query: str, series: SeriesSet, at_ms: int, now_ms: int) -> dict[str, Any]:
    """Return the data of an instant query.

    Parameters
    ----------
    at_ms
        Time of the values, milliseconds since 1970.
    now_ms
        Current time; later samples are hidden.
    """
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
        raise QueryError(f'the query has {steps} steps, at most {MAX_STEPS} are allowed; increase "step"')
    times_ms = start_ms + step_ms * np.arange(steps, dtype=np.int64)
    value = evaluate(query, Query(series=series, times_ms=times_ms, now_ms=now_ms))
    if isinstance(value, str | list):
        raise QueryError("a range query must yield a number for each step, not text or ranges; use an instant query")
    if not isinstance(value, Vector):
        value = Vector(labels=[()], values=value[None, :], present=np.ones((1, steps), dtype=bool))
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
