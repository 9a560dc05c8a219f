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
from opentelemetry.trace import get_current_span

from faultset.collector.runtime.http.caller import Caller
from faultset.collector.runtime.http.connection_pools import ConnectionPool
from faultset.collector.runtime.http.error_texts import ErrorTexts
from faultset.collector.runtime.http.names import Names
from faultset.collector.runtime.http.span_style import SpanStyle
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.signals.metrics import Metrics
from faultset.collector.runtime.signals.tracing import Tracing


def with_caller(folder: Path, work: Callable[[Caller, Tracing], Awaitable[Any]], **options: Any) -> Any:
    """Do something with a caller of the service `echo`, which returns the trace that it was given, or hangs."""

    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/hang":
            await asyncio.sleep(60)
        parent, timeout = request.headers.get("traceparent", "").split("-")[2], request.headers.get("grpc-timeout")
        return web.json_response({"parent": parent, "timeout": timeout})

    async def run() -> Any:
        runner = web.ServerRunner(web.Server(echo), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        hosts = folder / "hosts.json"
        hosts.write_text(json.dumps({"echo": "127.0.0.1", "closed": "127.0.0.1"}))
        tracing = Tracing()
        given = {"names": Names(str(hosts)), "local": None, "tracing": tracing, "metrics": Metrics(), **options}
        with closed_port() as closed:
            caller = Caller(ports={"echo": port, "closed": closed}, texts=ErrorTexts(), **given)
            try:
                return await work(caller, tracing)
            finally:
                await caller.close()
                await runner.cleanup()

    return asyncio.run(run())


def test_an_answer_that_does_not_come_in_time_is_a_deadline_exceeded(tmp_path: Path) -> None:
    async def work(caller: Caller, tracing: Tracing) -> None:
        _, context = tracing.server("/", {}, {})
        with pytest.raises(RpcError, match=r"DeadlineExceeded desc = no answer within 0\.1 s") as caught:
            await caller.call("echo", "/hang", {}, context, span="/hang", timeout_s=0.1)
        assert (caught.value.code, caught.value.dialled) == (Code.DEADLINE_EXCEEDED, None)

    with_caller(tmp_path, work)


def test_a_closed_port_is_told_with_what_was_dialled(tmp_path: Path) -> None:
    async def work(caller: Caller, tracing: Tracing) -> None:
        _, context = tracing.server("/", {}, {})
        with pytest.raises(RpcError) as caught:
            await caller.call("closed", "/x", {}, context)
        assert caught.value.dialled is not None
        assert caught.value.dialled.service == "closed"
        assert isinstance(caught.value.dialled.error, ConnectionRefusedError)

    with_caller(tmp_path, work)


def test_a_call_without_a_span_hands_on_that_of_its_operation(tmp_path: Path) -> None:
    async def work(caller: Caller, tracing: Tracing) -> None:
        _, context = tracing.server("/", {}, {})
        own = f"{get_current_span(context).get_span_context().span_id:016x}"
        assert (await caller.call("echo", "/x", {}, context))["parent"] == own
        assert (await caller.call("echo", "/x", {}, context, span="/x"))["parent"] != own

    with_caller(tmp_path, work)


@pytest.mark.parametrize("tells", [True, False])
def test_spans_tell_what_failed_only_where_their_style_says_so(tmp_path: Path, tells: bool) -> None:
    made: list[Any] = []

    async def work(caller: Caller, tracing: Tracing) -> None:
        client = tracing.client
        tracing.client = lambda *given: made.append(client(*given)) or made[-1]  # type: ignore[method-assign]
        _, context = tracing.server("/", {}, {})
        with pytest.raises(RpcError):
            await caller.call("closed", "/x", {}, context, span="x_client")

    with_caller(tmp_path, work, spans=SpanStyle(call_component=None, tell_outcome=tells))
    (span,) = made
    assert (span.status.is_ok, bool(span.events), "response_code" in span.attributes) == (not tells, tells, tells)
    assert ("component" in span.attributes, span.attributes["peer.service"]) == (False, "closed")


def test_a_call_that_gets_no_answer_in_time_is_repeated_as_often_as_the_process_is_set_to(tmp_path: Path) -> None:
    made: list[Any] = []

    async def work(caller: Caller, tracing: Tracing) -> None:
        client = tracing.client
        tracing.client = lambda *given: made.append(client(*given)) or made[-1]  # type: ignore[method-assign]
        _, context = tracing.server("/", {}, {})
        with pytest.raises(RpcError, match="DeadlineExceeded"):
            await caller.call("echo", "/hang", {}, context, span="/hang")

    with_caller(tmp_path, work, timeout_s=0.02, retries=3)
    assert len(made) == 4


def test_a_call_waits_for_a_connection_of_the_pool_and_fails_when_none_is_given_back(tmp_path: Path) -> None:
    async def work(caller: Caller, tracing: Tracing) -> None:
        _, context = tracing.server("/", {}, {})
        await caller.call("echo", "/x", {}, context)
        with pytest.raises(RpcError, match="the connection pool is exhausted") as caught:
            await caller.call("echo", "/x", {}, context)
        assert caught.value.code == Code.UNAVAILABLE

    with_caller(tmp_path, work, pool=ConnectionPool(1, kept_share=1.0, kept_s=30.0))


def test_a_host_in_place_of_a_service_is_told_when_nobody_has_it(tmp_path: Path) -> None:
    async def work(caller: Caller, tracing: Tracing) -> None:
        _, context = tracing.server("/", {}, {})
        with pytest.raises(RpcError, match="there is no host Echo-Old"):
            await caller.call("echo", "/x", {}, context)

    with_caller(tmp_path, work, names=Names(str(tmp_path / "hosts.json"), {"echo": "Echo-Old"}))
