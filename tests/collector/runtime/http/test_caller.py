"""Calls to other services over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from closed_ports import closed_port

from faultset.collector.runtime.http.caller import (
    Breaker,
    Breakers,
    Caller,
    CallSettings,
    ClientContext,
    ConnectionPool,
    header_value,
    now,
    time_left,
    within,
)
from faultset.collector.runtime.http.client import Names
from faultset.collector.runtime.http.status import CallRejectedError, Code, ErrorTexts, RpcError, SpanStyle
from faultset.collector.runtime.http.tracing import Span, Tracing
from faultset.collector.runtime.signals import Metrics
from faultset.collector.spec.features import CircuitBreaker


def with_caller(folder: Path, work: Callable[[Caller, Span], Awaitable[Any]], **options: Any) -> list[Span]:
    """Use a caller of the service `echo`, which returns the trace that it gets, or hangs; return the client spans."""

    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/hang":
            await asyncio.sleep(60)
        parent, timeout = request.headers.get("traceparent", "").split("-")[2], request.headers.get("grpc-timeout")
        return web.json_response({"parent": parent, "timeout": timeout})

    async def run() -> None:
        runner = web.ServerRunner(web.Server(echo), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        hosts = folder / "hosts.json"
        hosts.write_text(json.dumps({"echo": "127.0.0.1", "closed": "127.0.0.1"}))
        tracing = Tracing()
        start_client = tracing.client
        tracing.client = lambda *given: spans.append(start_client(*given)) or spans[-1]  # type: ignore[method-assign]
        common = {"names": Names(str(hosts)), "metrics": Metrics()}
        common |= {name: options.pop(name) for name in tuple(common) if name in options}
        with closed_port() as closed:
            context = ClientContext(local=None, texts=ErrorTexts(), **common)
            caller = Caller(context, ports={"echo": port, "closed": closed}, tracing=tracing, **options)
            try:
                await work(caller, tracing.server("/", {}, {}))
            finally:
                await caller.close()
                await runner.cleanup()

    spans: list[Span] = []
    asyncio.run(run())
    return spans


def test_an_answer_that_does_not_come_in_time_is_a_deadline_exceeded(tmp_path: Path) -> None:
    async def work(caller: Caller, context: Span) -> None:
        with pytest.raises(RpcError, match=r"DeadlineExceeded desc = no answer within 0\.1 s") as caught:
            await caller.call("echo", "/hang", {}, context, span="/hang", timeout_s=0.1)
        assert (caught.value.code, caught.value.dialled) == (Code.DEADLINE_EXCEEDED, None)

    with_caller(tmp_path, work)


def test_a_closed_port_is_told_with_what_was_dialled(tmp_path: Path) -> None:
    async def work(caller: Caller, context: Span) -> None:
        with pytest.raises(RpcError) as caught:
            await caller.call("closed", "/x", {}, context)
        assert caught.value.dialled is not None
        assert caught.value.dialled.service == "closed"
        assert isinstance(caught.value.dialled.error, ConnectionRefusedError)

    with_caller(tmp_path, work)


def test_a_call_without_a_span_hands_on_that_of_its_operation(tmp_path: Path) -> None:
    async def work(caller: Caller, context: Span) -> None:
        own = f"{context.span_id:016x}"
        assert (await caller.call("echo", "/x", {}, context))["parent"] == own
        assert (await caller.call("echo", "/x", {}, context, span="/x"))["parent"] != own

    with_caller(tmp_path, work)


@pytest.mark.parametrize("tells", [True, False])
def test_spans_tell_what_failed_only_where_their_style_says_so(tmp_path: Path, tells: bool) -> None:
    async def work(caller: Caller, context: Span) -> None:
        with pytest.raises(RpcError):
            await caller.call("closed", "/x", {}, context, span="x_client")

    (span,) = with_caller(tmp_path, work, spans=SpanStyle(call_component=None, reports_outcome=tells))
    assert (span.error is None, bool(span.events), "response_code" in span.attributes) == (not tells, tells, tells)
    assert ("component" in span.attributes, span.attributes["peer.service"]) == (False, "closed")


def test_a_call_that_gets_no_answer_in_time_is_repeated_as_often_as_the_process_is_set_to(tmp_path: Path) -> None:
    async def work(caller: Caller, context: Span) -> None:
        with pytest.raises(RpcError, match="DeadlineExceeded"):
            await caller.call("echo", "/hang", {}, context, span="/hang")

    assert len(with_caller(tmp_path, work, settings=CallSettings(timeout_s=0.02, retries=3))) == 4


def test_a_call_waits_for_a_connection_of_the_pool_and_fails_when_none_is_given_back(tmp_path: Path) -> None:
    async def work(caller: Caller, context: Span) -> None:
        await caller.call("echo", "/x", {}, context)
        with pytest.raises(RpcError, match="the connection pool is exhausted") as caught:
            await caller.call("echo", "/x", {}, context)
        assert caught.value.code == Code.UNAVAILABLE

    with_caller(tmp_path, work, settings=CallSettings(pool=ConnectionPool(1, kept_share=1.0, kept_s=30.0)))


def test_a_host_in_place_of_a_service_is_told_when_nobody_has_it(tmp_path: Path) -> None:
    async def work(caller: Caller, context: Span) -> None:
        with pytest.raises(RpcError, match="unknown host Echo-Old"):
            await caller.call("echo", "/x", {}, context)

    with_caller(tmp_path, work, names=Names(str(tmp_path / "hosts.json"), {"echo": "Echo-Old"}))


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
    async def work(caller: Caller, context: Span) -> None:
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

    async def work(caller: Caller, context: Span) -> None:

        async def fails() -> RpcError:
            with pytest.raises(RpcError) as caught:
                await caller.call("closed", "/x", {}, context, span="x")
            return caught.value

        for _ in range(2):
            assert not isinstance(await fails(), CallRejectedError)
        rejected = await fails()
        assert isinstance(rejected, CallRejectedError)
        assert (rejected.code, rejected.description) == (Code.UNAVAILABLE, "the circuit breaker of closed is open")
        await asyncio.sleep(0.25)
        assert not isinstance(await fails(), CallRejectedError)
        assert said == [("closed", "open"), ("closed", "half-open"), ("closed", "open")]
        assert (await caller.call("echo", "/x", {}, context))["parent"]

    assert len(with_caller(tmp_path, work, metrics=metrics, breakers=breakers)) == 3, "a rejected call has no span"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def call(breaker: Breaker, code: Code) -> bool:
    """Make a call that ends with a code; say whether it was let through."""
    if not breaker.admits():
        return False
    breaker.record_end(code)
    return True


def test_it_opens_after_five_failures_in_a_row_and_tries_again_after_thirty_seconds() -> None:
    clock, states = Clock(), []
    breaker = Breaker(CircuitBreaker(), states.append, clock)
    for code in [Code.UNAVAILABLE] * 4 + [Code.OK] + [Code.INTERNAL] * 4:
        assert call(breaker, code)
    assert states == []
    assert call(breaker, Code.DEADLINE_EXCEEDED)
    assert states == ["open"]
    clock.now += 29.9
    assert not call(breaker, Code.OK)
    clock.now += 0.2
    assert call(breaker, Code.OK)
    assert states == ["open", "half-open", "closed"]
    assert call(breaker, Code.UNAVAILABLE)
    assert breaker.state == "closed"


def test_a_trial_that_fails_opens_it_again() -> None:
    clock, states = Clock(), []
    breaker = Breaker(CircuitBreaker(failures=1, open_s=1.0, trials=2), states.append, clock)
    assert call(breaker, Code.UNKNOWN)
    clock.now += 1.0
    assert call(breaker, Code.OK)
    assert breaker.state == "half-open"
    assert call(breaker, Code.UNKNOWN)
    clock.now += 0.5
    assert not call(breaker, Code.OK)
    assert states == ["open", "half-open", "open"]


def test_no_more_trials_are_under_way_than_it_has() -> None:
    clock = Clock()
    breaker = Breaker(CircuitBreaker(failures=1, open_s=1.0, trials=2), clock=clock)
    call(breaker, Code.UNAVAILABLE)
    clock.now += 1.0
    assert [breaker.admits() for _ in range(3)] == [True, True, False]
    breaker.record_end(Code.CANCELED)
    assert breaker.admits()
    breaker.record_end(Code.OK)
    assert breaker.state == "half-open"
    breaker.record_end(Code.OK)
    assert breaker.state == "closed"


def test_refusals_for_good_reasons_and_late_ends_do_not_count() -> None:
    breaker = Breaker(CircuitBreaker(failures=1))
    for code in (Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.CANCELED):
        assert call(breaker, code)
    assert breaker.admits()
    assert breaker.admits()
    breaker.record_end(Code.UNAVAILABLE)
    breaker.record_end(Code.OK)
    assert breaker.state == "open"


def test_metrics_show_its_state_and_what_it_rejected() -> None:
    metrics, said = Metrics(), []
    breakers = Breakers({"stock": CircuitBreaker(failures=1)}, metrics, lambda *given: said.append(given))
    assert breakers.admits("other")
    breakers.record_end("other", Code.UNAVAILABLE)
    assert b'circuit_breaker_state{server_address="stock"} 0.0' in metrics.exposition()
    assert breakers.admits("stock")
    breakers.record_end("stock", Code.UNAVAILABLE)
    assert not breakers.admits("stock")
    text = metrics.exposition()
    assert b'circuit_breaker_state{server_address="stock"} 2.0' in text
    assert b'circuit_breaker_rejected_calls_total{server_address="stock"} 1.0' in text
    assert said == [("stock", "open")]
