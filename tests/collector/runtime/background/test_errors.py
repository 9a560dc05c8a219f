"""Errors that healthy services make by themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.context import Context

from faultset.collector.runtime.background.errors import BackgroundErrorEmitter
from faultset.collector.runtime.http.caller import Caller, CallSettings, ClientContext
from faultset.collector.runtime.http.client import Names
from faultset.collector.runtime.http.status import Code, ErrorTexts, RpcError
from faultset.collector.runtime.persona import Persona
from faultset.collector.runtime.signals import Log, Metrics
from faultset.collector.runtime.tracing import Tracing
from faultset.collector.spec.background_errors import BackgroundErrors


def test_a_failed_upload_is_logged_with_a_stack_trace(capfd: pytest.CaptureFixture[str]) -> None:
    errors = BackgroundErrorEmitter(BackgroundErrors(failed_uploads=60.0), Log(Persona()), "main", "127.0.0.1")
    asyncio.run(errors._upload())
    captured = capfd.readouterr()
    assert "upload of usage statistics failed" in captured.out
    assert captured.err.startswith("Traceback")
    assert "ConnectionRefusedError" in captured.err


def test_a_service_without_background_errors_is_always_healthy_and_does_nothing_beside_its_work() -> None:
    errors = BackgroundErrorEmitter(BackgroundErrors(), Log(Persona()), "main", "127.0.0.1")
    assert errors.tasks() == []
    assert all(errors.is_healthy() for _ in range(1000))


def test_probes_fail_at_the_given_share() -> None:
    errors = BackgroundErrorEmitter(BackgroundErrors(unhealthy_answers=0.5), Log(Persona()), "main", "127.0.0.1")
    assert 400 < sum(errors.is_healthy() for _ in range(1000)) < 600


@pytest.mark.parametrize(("code", "attempts"), [(Code.DEADLINE_EXCEEDED, 2), (Code.INTERNAL, 1)])
def test_a_hasty_call_is_repeated_with_its_own_time_limit(code: Code, attempts: int) -> None:
    limits: list[float | None] = []
    retries: list[str] = []

    class Failing(Caller):
        async def _call(self, *args: Any, **options: Any) -> Any:
            limits.append(args[5])
            if len(limits) == 1:
                raise RpcError(code, "no answer in time")
            return "reply"

    async def call() -> Any:
        caller = Failing(
            ClientContext(names=Names(None), local=None, metrics=Metrics(), texts=ErrorTexts()),
            ports={},
            tracing=Tracing(None),
            settings=CallSettings(timeout_s=3.0, hasty_share=1.0),
            report_retry=lambda callee, error: retries.append(callee),
        )
        return await caller.call("geo", "/geo.Geo/Nearby", {}, Context())

    if attempts == 1:
        with pytest.raises(RpcError):
            asyncio.run(call())
    else:
        assert asyncio.run(call()) == "reply"
        assert limits[1] == 3.0
        assert retries == ["geo"]
    assert len(limits) == attempts
    assert limits[0] is not None
    assert limits[0] < 0.01
