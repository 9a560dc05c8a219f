"""Steps that call services and read settings."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from faultset.collector.runtime.context import RequestContext
from faultset.collector.runtime.environment import list_missing_variables
from faultset.collector.runtime.http.caller import now
from faultset.collector.runtime.http.status import CallRejectedError, Code, FailedDial, RpcError
from faultset.collector.runtime.persona import Line, Persona
from faultset.collector.runtime.steps.basic import Call, ReadSetting
from faultset.collector.spec.app import Operation, ServiceSpec

REFUSED = RpcError(Code.UNAVAILABLE, "refused", FailedDial("s", 80, ConnectionRefusedError()))


class TalkingPersona(Persona):
    def lines_of_failed_dial(self, dialled: FailedDial, location: str) -> tuple[Line, ...]:
        return (Line("error", location, f"no {dialled.service}"),)


class Service:
    """A service whose callee answers as it is told."""

    def __init__(self, *answers: Any, persona: Persona | None = None):
        self.caller, self.log, self.persona = self, self, persona or Persona()
        self.answers, self.given, self.lines = list(answers), [], []
        self.begun = 0.0

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

    def do(self, *, left_s: float | None = None, **fields: Any) -> dict[str, Any]:
        step = Call(**{"service": "s", "operation": "/o", "save": "reply", "back_off_s": 0.01, **fields})

        async def run() -> dict[str, Any]:
            request = RequestContext(values={}, trace=None)
            self.begun = now()
            request.deadline = None if left_s is None else self.begun + left_s
            await cast(Any, step.compile(cast(Any, self), "here")(request))
            return request.values

        return asyncio.run(run())


def test_a_call_that_did_not_arrive_is_repeated() -> None:
    late = RpcError(Code.DEADLINE_EXCEEDED, "late")
    service = Service(REFUSED, late, {"x": 1})
    assert service.do(retries=2, timeout_s=0.5) == {"reply": {"x": 1}}
    assert service.given == [{"span": "/o", "timeout_s": 0.5, "at": None, "deadline": None}] * 3
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


@pytest.mark.parametrize(("left_s", "deadline_s", "wanted_s"), [(None, 3.0, 3.0), (2.0, 3.0, 2.0), (2.0, None, 2.0)])
def test_the_earlier_of_the_requests_and_the_calls_deadline_counts(
    left_s: float | None, deadline_s: float | None, wanted_s: float
) -> None:
    service = Service({"x": 1})
    service.do(left_s=left_s, deadline_s=deadline_s)
    assert service.given[0]["deadline"] - service.begun == pytest.approx(wanted_s, abs=0.2)


def test_a_call_is_not_repeated_when_no_time_is_left_or_a_breaker_is_open() -> None:
    service = Service(REFUSED, {"x": 1})
    with pytest.raises(RpcError, match="refused"):
        service.do(retries=3, deadline_s=0.5, back_off_s=1.0)
    rejected = Service(CallRejectedError(Code.UNAVAILABLE, "open"), {"x": 1})
    with pytest.raises(RpcError, match="open"):
        rejected.do(retries=3)
    assert len(service.given) == len(rejected.given) == 1


def reader(**fields: Any) -> Any:
    """Compile a step; return a function that gives what it saves."""
    handle = ReadSetting(save="found", **fields).compile(cast(Any, None), "here")

    def read() -> Any:
        request = RequestContext(values={"other": 7}, trace=None)
        handle(request)
        return request.values["found"]

    return read


def test_a_variable_keeps_the_value_that_it_had_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMIT", "3")
    read, as_json = reader(variable="LIMIT"), reader(variable="LIMIT", json=True)
    monkeypatch.setenv("LIMIT", "4")
    assert (read(), as_json()) == ("3", 3)
    assert reader(variable="NONE", default="$other")() == 7


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTSET_MOUNTS", json.dumps({"/etc/shop": str(tmp_path)}))
    file = tmp_path / "offers.json"
    file.write_text('{"tea": 3}')
    text, value = reader(file="/etc/shop/offers.json"), reader(file="/etc/shop/offers.json", json=True)
    assert (text(), value()) == ('{"tea": 3}', {"tea": 3})
    file.write_text('{"tea": 4, "milk": 1}')
    assert value() == {"tea": 4, "milk": 1}
    file.write_text("{tea")
    with pytest.raises(RpcError, match=r"/etc/shop/offers\.json is not JSON"):
        value()
    file.unlink()
    with pytest.raises(RpcError, match=r"file /etc/shop/offers\.json does not exist"):
        value()


def test_variables_without_a_default_must_be_set_when_a_service_starts() -> None:
    steps = (
        ReadSetting(variable="A", save="x"),
        ReadSetting(variable="B", default="1", save="y"),
        ReadSetting(variable="C", save="z"),
    )
    service = ServiceSpec(name="web", kind="logic", operations={"/o": Operation(steps=steps)})
    assert list_missing_variables(service, {"C": "here"}) == ("A",)
