"""Consumers of messages, which run for as long as their service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import time
from typing import Any

from faultset.collector.runtime.background.work import WorkSpan, compile_round
from faultset.collector.runtime.context import ServiceContext
from faultset.collector.runtime.stores.driver import BrokerMessage, StoreError
from faultset.collector.spec.features.behaviour import Consumer

BODY, PARENT = "body", "traceparent"
"""Fields of a message: its content as JSON, and the publisher's span."""

_TAKE_TIMEOUT_S = 1.0
_LAG_INTERVAL_S = 1.0
_PAUSE_S = 1.0
_REBALANCE_S = (0.1, 0.8)


class MessageConsumer:
    """One member of a consumer group.

    Parameters
    ----------
    name
        Name of the consumer in the spec.
    member
        Unique name of the member, which is the pod's name.
    group
        Name of the group if the consumer's spec names none.
    rebalances
        Mean number of times per minute that the member pauses and joins its group again.
    """

    def __init__(
        self,
        name: str,
        consumer: Consumer,
        service: ServiceContext,
        *,
        member: str,
        group: str,
        rebalances: float = 0.0,
    ):
        broker = service.stores[consumer.store]
        self._consumer, self._service, self._broker = consumer, service, broker
        self._member, self._group = member, consumer.group or group
        self._location = consumer.location or name
        self._run_round = compile_round(name, consumer, service)
        labels, metrics = ("topic", "group"), service.metrics
        system = broker.driver.system
        label_values = (consumer.topic, self._group)
        self._lag = metrics.gauge(
            f"{system}_consumer_group_lag", labels, "Messages that the group has not acknowledged."
        ).labels(*label_values)
        self._consumed = metrics.counter(
            "messaging_client_consumed_messages", ("messaging_system", "destination", "group"), "Messages consumed."
        ).labels(system, *label_values)
        self._duration = metrics.histogram(
            "messaging_process_duration_seconds",
            ("messaging_system", "destination", "group"),
            "Duration of the processing of messages.",
        ).labels(system, *label_values)
        self._claimed_at = self._measured_at = 0.0
        self._rebalances = rebalances
        self._rebalance_at = self._draw_rebalance()

    async def run(self) -> None:
        """Take, process and acknowledge messages until cancelled; wait a second after each failure of the broker.

        The lag is measured even if the account may no longer take messages.
        """
        has_joined, may_log = False, True
        while True:
            try:
                if has_joined and time.monotonic() >= self._rebalance_at:
                    has_joined = False
                    self._rebalance_at = self._draw_rebalance()
                    topic, group = self._consumer.topic, self._group
                    self._service.log.warning(self._location, f"group {group} of {topic} is rebalancing, joining again")
                    await asyncio.sleep(random.uniform(*_REBALANCE_S))
                if not has_joined:
                    await self._broker.join(self._consumer.topic, self._group)
                    has_joined = True
                for message in await self._receive_messages():
                    await self._process(message)
                    await self._measure_lag()
                await self._measure_lag()
                may_log = True
            except StoreError as error:
                has_joined = False  # a broker that has lost its data has also lost the group
                if may_log:
                    self._service.log.error(self._location, str(error))
                may_log = False
                if error.kind == "rights":
                    with contextlib.suppress(StoreError):
                        await self._measure_lag()
                await asyncio.sleep(_PAUSE_S)

    def _draw_rebalance(self) -> float:
        return time.monotonic() + (random.expovariate(self._rebalances / 60) if self._rebalances else math.inf)

    async def _measure_lag(self) -> None:
        if time.monotonic() - self._measured_at >= _LAG_INTERVAL_S:
            self._lag.set(await self._broker.lag(self._consumer.topic, self._group))
            self._measured_at = time.monotonic()

    async def _receive_messages(self) -> list[BrokerMessage]:
        consumer, member = self._consumer, (self._consumer.topic, self._group, self._member)
        if time.monotonic() - self._claimed_at > consumer.redeliver_after_s / 2:
            self._claimed_at = time.monotonic()
            messages = await self._broker.take_over(*member, count=consumer.batch, idle_s=consumer.redeliver_after_s)
            if messages:
                return messages
        return await self._broker.take(*member, count=consumer.batch, wait_s=_TAKE_TIMEOUT_S)

    async def _process(self, message: BrokerMessage) -> None:
        values = _parse_content(message)
        if values is None:
            await self._wait_for_removal(message)
            return
        start = time.perf_counter()
        is_processed = await self._run_round(values, self._start_span(message))
        self._duration.observe(time.perf_counter() - start)
        self._consumed.inc()
        if is_processed or self._consumer.on_failure == "skip":
            await self._broker.acknowledge(self._consumer.topic, self._group, [message.identity])

    async def _wait_for_removal(self, message: BrokerMessage) -> None:
        """Wait until a message that cannot be parsed is removed; later messages wait too, because order matters."""
        topic = self._consumer.topic
        while await self._broker.has(topic, message.identity):
            text = f"message {message.identity} of {topic} cannot be parsed: its body is not JSON"
            self._service.log.error(self._location, text)
            await self._measure_lag()
            await asyncio.sleep(_PAUSE_S)
        await self._broker.acknowledge(topic, self._group, [message.identity])

    def _start_span(self, message: BrokerMessage) -> WorkSpan | None:
        consumer = self._consumer
        if consumer.span is None:
            return None
        attributes = {
            "messaging.system": self._broker.driver.system,
            "messaging.destination.name": consumer.topic,
            "messaging.consumer.group.name": self._group,
            "messaging.message.id": message.identity,
            "peer.service": consumer.store,
        }
        headers = {PARENT: message.fields.get(PARENT, "")}
        return self._service.tracing.consumer(consumer.span, headers, attributes, linked=consumer.trace == "link")


def _parse_content(message: BrokerMessage) -> dict[str, Any] | None:
    """Return the content of a message; None if it is not JSON, empty if it is not an object."""
    try:
        content = json.loads(message.fields.get(BODY, "{}"))
    except ValueError:
        return None
    return content if isinstance(content, dict) else {}
