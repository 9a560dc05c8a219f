"""Spans are sent whatever becomes of the receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from span_receiver import Receiver

from faultset.collector.runtime.http import span_sender
from faultset.collector.runtime.http.span_sender import SpanSender, pod_resource
from faultset.collector.runtime.signals.tracing import Tracing


def sent_to(endpoint: str, work: Callable[[Tracing], None]) -> None:
    """Make spans in a process that then ends."""

    async def run() -> None:
        tracing = Tracing(SpanSender(pod_resource("geo", "geo-1"), endpoint, "127.0.0.9"))
        work(tracing)
        await tracing.close()

    asyncio.run(run())


def test_a_process_that_ends_sends_its_last_spans_from_its_own_address() -> None:
    receiver = Receiver()
    try:
        sent_to(receiver.endpoint, lambda tracing: [tracing.server(f"/{n}", {}, {})[0].end() for n in range(2500)])  # type: ignore[func-returns-value]
    finally:
        receiver.close()
    assert sorted(int(span.name[1:]) for span in receiver.spans) == list(range(2500))
    assert {(span.peer, span.service, span.pod) for span in receiver.spans} == {("127.0.0.9", "geo", "geo-1")}


def test_a_receiver_that_does_not_listen_holds_up_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_sender, "_TIMEOUT_S", 0.1)
    sent_to("http://127.0.0.1:9", lambda tracing: tracing.server("/", {}, {})[0].end())
