"""Deadlines: from header to header, and what becomes of a request whose deadline passes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.runtime.http.caller import Caller
from faultset.collector.runtime.http.circuit_breakers import Breakers
from faultset.collector.runtime.http.deadlines import header_value, now, time_left, within
from faultset.collector.runtime.http.error_texts import ErrorTexts
from faultset.collector.runtime.http.status import CallRejectedError, Code, RpcError
from faultset.collector.runtime.signals.metrics import Metrics
from faultset.collector.runtime.signals.tracing import Tracing
from faultset.collector.spec.features.circuit_breakers import CircuitBreaker
from tests.collector.runtime.http.test_caller import with_caller


@pytest.mark.parametrize("left_s", [0.0, 0.000_25, 1.5, 99.0, 7200.0, 86_400.0 * 30])
def test_a_header_tells_the_time_that_is_left(left_s: float) -> None:
    assert time_left({"grpc-timeout": header_value(left_s)}) == pytest.approx(left_s)


@pytest.mark.parametrize("text", ["", "m", "5", "-5m", "123456789m", "5x", "\u0665m"])
def test_what_is_no_header_of_grpc_is_no_deadline(text: str) -> None:
    assert time_left({"grpc-timeout": text}) is None


def test_what_takes_longer_than_its_deadline_is_given_up() -> None:
    async def late() -> None:
        async with within(now() + 0.02, ErrorTexts()):
            await asyncio.sleep(30)

    async def fails_itself() -> None:
        async with within(now() + 30, ErrorTexts()):
            raise TimeoutError("its own")

    with pytest.raises(RpcError, match="DeadlineExceeded desc = the deadline has passed"):
        asyncio.run(late())
    with pytest.raises(TimeoutError, match="its own"):
        asyncio.run(fails_itself())


def test_a_callee_is_told_what_is_left_and_a_late_call_is_not_made(tmp_path: Path) -> None:
    async def work(caller: Caller, tracing: Tracing) -> None:
        _, context = tracing.server("/", {}, {})
        reply = await caller.call("echo", "/x", {}, context, deadline=now() + 2.0)
        assert 1.0 < time_left({"grpc-timeout": reply["timeout"]}) <= 2.0  # type: ignore[operator]
        assert (await caller.call("echo", "/x", {}, context))["timeout"] is None
        with pytest.raises(RpcError, match="the deadline has passed"):
            await caller.call("echo", "/hang", {}, context, deadline=now() + 0.05, timeout_s=20.0)
        with pytest.raises(RpcError, match=r"no answer within 0\.05 s"):
            await caller.call("echo", "/hang", {}, context, deadline=now() + 20, timeout_s=0.05)
        with pytest.raises(RpcError, match="the deadline has passed"):
            await caller.call("echo", "/x", {}, context, deadline=now() - 1)

    with_caller(tmp_path, work)


def test_an_open_breaker_fails_calls_at_once_and_without_a_span(tmp_path: Path) -> None:
    metrics, said = Metrics(), []
    settings = {"closed": CircuitBreaker(failures=2, open_s=0.2)}
    breakers = Breakers(settings, metrics, lambda *given: said.append(given))
    made: list[Any] = []

    async def work(caller: Caller, tracing: Tracing) -> None:
        client = tracing.client
        tracing.client = lambda *given: made.append(client(*given)) or made[-1]  # type: ignore[method-assign]
        _, context = tracing.server("/", {}, {})

        async def fails() -> RpcError:
            with pytest.raises(RpcError) as caught:
                await caller.call("closed", "/x", {}, context, span="x")
            return caught.value

        for _ in range(2):
            assert not isinstance(await fails(), CallRejectedError)
        rejected = await fails()
        assert isinstance(rejected, CallRejectedError)
        assert (rejected.code, rejected.description) == (Code.UNAVAILABLE, "the circuit breaker of closed is open")
        assert len(made) == 2
        await asyncio.sleep(0.25)
        assert not isinstance(await fails(), CallRejectedError)
        assert said == [("closed", "open"), ("closed", "half-open"), ("closed", "open")]
        assert (await caller.call("echo", "/x", {}, context))["parent"]

    with_caller(tmp_path, work, metrics=metrics, breakers=breakers)
