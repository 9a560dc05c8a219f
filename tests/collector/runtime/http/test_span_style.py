"""Which spans are errors, and what tells how a call ended, by the convention of an application's instrumentation."""

from __future__ import annotations

import pytest

from faultset.collector.runtime.http.span_style import SpanStyle
from faultset.collector.runtime.http.status import Code

OPENTRACING, OPENTELEMETRY = SpanStyle(), SpanStyle(convention="opentelemetry")


@pytest.mark.parametrize(
    ("code", "opentracing", "opentelemetry"),
    [
        (Code.OK, False, False),
        (Code.UNKNOWN, False, True),
        (Code.FAILED_PRECONDITION, False, True),
        (Code.NOT_FOUND, False, True),
        (Code.INTERNAL, True, True),
        (Code.UNAVAILABLE, True, True),
    ],
)
def test_opentracing_marks_only_class_5xx_at_the_callee_and_opentelemetry_whatever_failed(
    code: Code, opentracing: bool, opentelemetry: bool
) -> None:
    assert (OPENTRACING.is_server_error(code), OPENTELEMETRY.is_server_error(code)) == (opentracing, opentelemetry)


def test_an_endpoint_that_answers_500_is_an_error_with_opentelemetry_only() -> None:
    assert [OPENTELEMETRY.is_endpoint_error(status) for status in (200, 404, 500, 503)] == [False, False, True, True]
    assert not OPENTRACING.is_endpoint_error(500)


def test_each_convention_has_its_own_attributes_of_the_outcome() -> None:
    assert OPENTRACING.outcome_attributes(Code.UNAVAILABLE) == {"response_code": 14, "response_class": "5xx"}
    assert OPENTELEMETRY.outcome_attributes(Code.UNAVAILABLE) == {"rpc.grpc.status_code": 14}
