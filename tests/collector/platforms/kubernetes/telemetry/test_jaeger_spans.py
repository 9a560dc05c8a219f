"""An answer with traces is cut into them, and what has come before is not parsed again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from faultset.collector.platforms.kubernetes.telemetry.endpoints import TruncatedResponse
from faultset.collector.platforms.kubernetes.telemetry.jaeger_spans import KnownTraces
from faultset.core.errors import PlatformError

MAX_TRACES = 100


def _trace(number: int, spans: int = 2, text: str = "") -> dict[str, Any]:
    name = f"{number:032x}"
    return {
        "traceID": name,
        "spans": [{"traceID": name, "spanID": f"{span:016x}", "operationName": text} for span in range(spans)],
        "processes": {"p1": {"serviceName": "geo", "tags": []}},
        "warnings": None,
    }


def _body(*traces: dict[str, Any], **rest: Any) -> bytes:
    return json.dumps({"data": traces, "total": 0, "errors": None} | rest, separators=(",", ":")).encode()


def test_traces_that_came_before_are_left_out_except_the_last_of_an_answer() -> None:
    answers = KnownTraces()
    first = [_trace(number) for number in range(5)]
    assert answers.new_traces(_body(*first), "Jaeger", fewer_than=MAX_TRACES) == (5, first)
    count, found = answers.new_traces(_body(*first[:3], _trace(7), first[3]), "Jaeger", fewer_than=MAX_TRACES)
    assert count == 5
    assert found == [_trace(7), first[3]]


def test_a_trace_that_has_grown_is_new() -> None:
    answers = KnownTraces()
    answers.new_traces(_body(_trace(1), _trace(2)), "Jaeger", fewer_than=MAX_TRACES)
    grown = _trace(1, spans=3)
    assert answers.new_traces(_body(grown, _trace(2)), "Jaeger", fewer_than=MAX_TRACES) == (2, [grown, _trace(2)])


def test_traces_of_an_answer_that_was_too_full_or_cut_are_still_new() -> None:
    answers = KnownTraces()
    traces = [_trace(number) for number in range(4)]
    body = _body(*traces)
    assert answers.new_traces(body, "Jaeger", fewer_than=4) == (4, [])
    with pytest.raises(TruncatedResponse):
        answers.new_traces(body[:-20], "Jaeger", fewer_than=MAX_TRACES)
    assert answers.new_traces(body, "Jaeger", fewer_than=MAX_TRACES) == (4, traces)


def test_an_answer_in_another_format_is_parsed_whole_each_time() -> None:
    answers = KnownTraces()
    traces = [_trace(number) for number in range(3)]
    body = json.dumps({"data": traces}, indent=1).encode()
    for _ in range(2):
        assert answers.new_traces(body, "Jaeger", fewer_than=MAX_TRACES) == (3, traces)
    assert answers.new_traces(body, "Jaeger", fewer_than=3) == (3, [])


def test_text_of_a_span_that_looks_like_a_trace_is_no_trace() -> None:
    answers = KnownTraces()
    hostile = _trace(1, text='{"traceID":"00","spans":[')
    assert answers.new_traces(_body(hostile, _trace(2)), "Jaeger", fewer_than=MAX_TRACES) == (2, [hostile, _trace(2)])
    assert answers.new_traces(_body(hostile, _trace(3)), "Jaeger", fewer_than=MAX_TRACES) == (2, [_trace(3)])


def test_an_empty_answer_holds_no_trace_and_a_refusal_is_said() -> None:
    assert KnownTraces().new_traces(_body(), "Jaeger", fewer_than=MAX_TRACES) == (0, [])
    with pytest.raises(PlatformError, match=r"Jaeger rejected the request for traces: .*closed"):
        KnownTraces().new_traces(_body(errors=[{"code": 500, "msg": "closed"}]), "Jaeger", fewer_than=MAX_TRACES)
