"""Calls: deadlines, repetitions, and what is said of failures."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from faultset.collector.runtime.context import RequestContext
from faultset.collector.runtime.http.status import Code, FailedDial, RpcError
from faultset.collector.runtime.persona import Line, Persona
from faultset.collector.runtime.steps.basic import Call

REFUSED = RpcError(Code.UNAVAILABLE, "refused", FailedDial("s", 80, ConnectionRefusedError()))


class TalkingPersona(Persona):
    def lines_of_failed_dial(self, dialled: FailedDial, location: str) -> tuple[Line, ...]:
        return (Line("error", location, f"no {dialled.service}"),)


class Service:
    """A service whose callee answers as it is told."""

    def __init__(self, *answers: Any, persona: Persona | None = None):
        self.caller, self.log, self.persona = self, self, persona or Persona()
        self.answers, self.given, self.lines = list(answers), [], []

    async def call(self, service: str, operation: str, body: Any, context: Any, **given: Any) -> Any:
        self.given.append(given)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def write(self, level: str, location: str, message: str) -> None:
        self.lines.append((level, message))

    def error(self, location: str, message: str) -> None:
        self.write("error", location, message)

    def do(self, **fields: Any) -> dict[str, Any]:
        request = RequestContext(values={}, trace=cast(Any, None))
        step = Call(service="s", operation="/o", save="reply", back_off_s=0.01, **fields)
        asyncio.run(step.compile(cast(Any, self), "here")(request))  # type: ignore[arg-type]
        return request.values


def test_a_call_that_did_not_arrive_is_repeated() -> None:
    late = RpcError(Code.DEADLINE_EXCEEDED, "late")
    service = Service(REFUSED, late, {"x": 1})
    assert service.do(retries=2, timeout_s=0.5) == {"reply": {"x": 1}}
    assert service.given == [{"span": "/o", "timeout_s": 0.5, "at": None}] * 3
    assert service.lines == []


def test_an_answer_that_refuses_is_final() -> None:
    service = Service(RpcError(Code.INTERNAL, "no"), {"x": 1})
    with pytest.raises(RpcError, match="no"):
        service.do(retries=2)
    assert len(service.given) == 1


def test_the_last_failure_is_told_in_the_callers_words() -> None:
    service = Service(REFUSED, REFUSED)
    with pytest.raises(RpcError) as caught:
        service.do(retries=1, error_log="cannot: {error}", error_message="gave up: {error}")
    assert (caught.value.description, service.lines) == ("gave up: refused", [("error", "cannot: refused")])


def test_a_persona_has_lines_of_its_own_for_connections_that_fail() -> None:
    service = Service(REFUSED, RpcError(Code.INTERNAL, "no"), persona=TalkingPersona())
    for _ in range(2):
        with pytest.raises(RpcError):
            service.do(error_log="cannot: {error}")
    assert service.lines == [("error", "no s"), ("error", "cannot: no")]


def test_the_span_of_a_call_has_the_name_it_is_given_or_there_is_none() -> None:
    service = Service({}, {})
    service.do(span="get_client")
    service.do(has_span=False)
    assert [given["span"] for given in service.given] == ["get_client", None]
