"""The step that publishes messages."""

from __future__ import annotations

import json
from typing import Any

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter, number
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.signals.tracing import fail, headers_of, span_of
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.steps.storage import OnError
from faultset.collector.runtime.stores.driver import StoreError


class Publish(Step):
    """Publish a message to a topic of a broker, with the span under which it was published."""

    keyword = "publish"
    store: str
    """The broker, one of the service's `stores`."""
    topic: str
    """The topic, which comes into being with its first message."""
    message: Any
    """The content, a mapping."""
    times: Any = 1
    """How many copies are published, a number; nothing happens when it is zero or nothing."""
    span: str | None = None
    """Name of the producer's span; none when left out."""
    error_log: str | None = None
    """Line that is logged when the broker fails, with `{error}`; none when left out."""
    on_error: OnError = "fail"
    """Whether a failing broker fails the request, does nothing more, or ends the process (`panic`)."""

    def brokers_used(self) -> tuple[str, ...]:
        """Return the broker."""
        return (self.store,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that publishes."""
        broker = service.stores[self.store]
        message_of, times_of = getter(self.message), getter(self.times)
        system = broker.driver.system
        sent = service.metrics.counter(
            "messaging_client_sent_messages", ("messaging_system", "destination"), "Messages published."
        ).labels(system, self.topic)

        async def handle(request: RequestContext) -> None:
            times = int(number(times_of(request.values)))
            if times <= 0:
                return
            attributes = {
                "messaging.system": system,
                "messaging.destination.name": self.topic,
                "peer.service": self.store,
            }
            span = None if self.span is None else service.tracing.producer(self.span, request.trace, attributes)
            headers = headers_of(span_of(request.trace) if span is None else span)
            fields = {"body": json.dumps(message_of(request.values)), **headers}
            try:
                await broker.publish(self.topic, [fields] * times)
                sent.inc(times)
            except StoreError as error:
                if span is not None and service.persona.spans.tell_outcome:
                    fail(span, str(error))
                self._failed(service, location, error)
            finally:
                if span is not None:
                    span.end()

        return handle

    def _failed(self, service: ServiceContext, location: str, error: StoreError) -> None:
        text = (self.error_log or "{error}").replace("{error}", str(error))
        if self.on_error == "panic":
            service.log.panic(location, text)
        if self.error_log is not None:
            service.log.error(location, text)
        if self.on_error == "fail":
            raise RpcError(Code.INTERNAL, text) from None
