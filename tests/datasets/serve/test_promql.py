"""Answers to PromQL queries equal those of a real Prometheus, recorded by `record_prometheus_answers.py`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faultset.datasets.serve.promql.evaluation import answer_instant, answer_range
from faultset.datasets.serve.promql.series import QueryError, SeriesSet, build_series

RECORDED = json.loads(Path(__file__).with_name("prometheus_answers.json").read_text())
START_MS = 1000 * RECORDED["start_s"]
LATER_MS = 10**15


@pytest.fixture(scope="module")
def series() -> SeriesSet:
    """The series that Prometheus had."""
    return SeriesSet(
        build_series(
            item["labels"],
            np.array([round(1000 * at) + START_MS for at, _ in item["samples"]], dtype=np.int64),
            np.array([value for _, value in item["samples"]], dtype=float),
        )
        for item in RECORDED["series"]
    )


def _comparable(answer: dict[str, Any], *, ordered: bool) -> Any:
    """Return an answer with numbers in place of texts."""
    if "error" in answer:
        return answer

    def number(pair: list[Any]) -> tuple[float, float]:
        return round(pair[0], 3), float(pair[1])

    if answer["type"] == "scalar":
        return number(answer["result"])
    rows = [
        (sorted(labels.items()), [number(values)] if answer["type"] == "vector" else [number(pair) for pair in values])
        for labels, values in answer["result"]
    ]
    return rows if ordered else sorted(rows, key=str)


def _assert_close(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, list | tuple) and not isinstance(theirs, str):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            _assert_close(one, other)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12, nan_ok=True)
    else:
        assert ours == theirs


def _answer(function: Any, *arguments: Any) -> dict[str, Any]:
    try:
        data = function(*arguments)
    except QueryError as error:
        return {"error": error.kind}
    if data["resultType"] in ("vector", "matrix"):
        key = "value" if data["resultType"] == "vector" else "values"
        return {"type": data["resultType"], "result": [[row["metric"], row[key]] for row in data["result"]]}
    return {"type": data["resultType"], "result": data["result"]}


@pytest.mark.parametrize("recorded", RECORDED["answers"], ids=lambda recorded: recorded["query"])
def test_values_equal_those_of_prometheus(series: SeriesSet, recorded: dict[str, Any]) -> None:
    query = recorded["query"]
    ordered = query.startswith(("sort", "topk", "bottomk"))
    at_once = _answer(answer_instant, query, series, START_MS + 600_000, LATER_MS)
    _assert_close(_comparable(at_once, ordered=ordered), _comparable(recorded["instant"], ordered=ordered))
    over_time = _answer(answer_range, query, series, START_MS + 60_000, START_MS + 600_000, 60_000, LATER_MS)
    _assert_close(_comparable(over_time, ordered=False), _comparable(recorded["range"], ordered=False))


def _gauge(times_s: list[float], interval_s: float | None = None) -> SeriesSet:
    times_ms = np.array([round(1000 * at) for at in times_s], dtype=np.int64)
    return SeriesSet([build_series({"__name__": "x"}, times_ms, np.arange(len(times_s), dtype=float), interval_s)])


def _values(series: SeriesSet, query: str, now_s: float = 1e6) -> list[tuple[float, float]]:
    rows = answer_range(query, series, 0, 100_000, 10_000, round(1000 * now_s))["result"]
    return [(at, float(value)) for row in rows for at, value in row["values"]]


def test_a_series_that_ended_has_no_value_after_two_missed_scrapes() -> None:
    assert [at for at, _ in _values(_gauge([0, 5, 10, 15], interval_s=5), "x")] == [0, 10, 20]
    assert [at for at, _ in _values(_gauge([0, 5, 10, 15]), "x")] == list(range(0, 101, 10))


def test_a_gap_ends_when_the_series_returns() -> None:
    assert _values(_gauge([0, 60, 65], interval_s=5), "x") == [(0, 0), (10, 0), (60, 1), (70, 2)]


def test_samples_after_the_current_time_are_hidden() -> None:
    series = _gauge([0, 10, 20, 30, 40])
    assert max(value for _, value in _values(series, "x", now_s=20)) == 2
    assert max(value for _, value in _values(series, "sum_over_time(x[100s])", now_s=20)) == 3


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("up{", "invalid PromQL"),
        ('count_values("v", x)', "is not supported; use one of sum"),
        ("predict_linear(x[5m], 60)", 'function "predict_linear" is not supported; use one of abs'),
        ("x[5m]", "wrap the range in rate"),
        ('"text"', "a number for each step"),
        ('x{a="b" or c="d"}', "use a regular expression"),
    ],
)
def test_queries_that_cannot_be_answered_say_why(query: str, message: str) -> None:
    with pytest.raises(QueryError, match=message.replace("(", r"\(")):
        answer_range(query, _gauge([0]), 0, 1000, 1000, LATER_MS)


def test_limits_keep_queries_small() -> None:
    with pytest.raises(QueryError, match="at most 11000"):
        answer_range("x", _gauge([0]), 0, 11_000_000, 1000, LATER_MS)
    many = SeriesSet(
        build_series({"__name__": "x", "n": str(n)}, np.zeros(1, dtype=np.int64), np.zeros(1)) for n in range(2000)
    )
    with pytest.raises(QueryError, match="2000 series at 10001 steps"):
        answer_range("x", many, 0, 10_000_000, 1000, LATER_MS)


def test_infinite_values_are_written_like_prometheus_does() -> None:
    result = answer_instant("x / 0 or vector(NaN)", _gauge([0, 10]), 10_000, LATER_MS)["result"]
    assert [row["value"][1] for row in result] == ["+Inf"]
    assert math.isnan(float(answer_instant("vector(NaN)", _gauge([0]), 0, LATER_MS)["result"][0]["value"][1]))
