"""Background work of services: consumers of messages, periodic tasks, simulated heaps and occasional errors."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import math
import random
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import GCCollector, Summary

from faultset.collector.runtime.context import RequestContext, ServiceContext
from faultset.collector.runtime.http.status import BadRequest, RpcError
from faultset.collector.runtime.http.tracing import Span, format_ids
from faultset.collector.runtime.signals import Log, Metrics
from faultset.collector.runtime.steps.step import compile_steps
from faultset.collector.runtime.stores.driver import BrokerMessage, StoreError
from faultset.collector.spec.features import BackgroundErrors, BackgroundWork, Consumer, HeapUse, Language, Task

Round = Callable[[dict[str, Any], Span | None], Awaitable[bool]]
"""Function that runs one round with values and a span, ends the span, and returns whether the steps succeeded."""
BODY, PARENT = "body", "traceparent"
"""Fields of a message: its content as JSON, and the publisher's span."""
_TAKE_TIMEOUT_S = 1.0
_LAG_INTERVAL_S = 1.0
_RETRY_PAUSE_S = 1.0
_REBALANCE_S = (0.1, 0.8)
_CLOSED_PORT = 9
"""Port on which nothing listens; uploads of usage statistics to it fail."""
_SLOW_PHASE_S = (4.0, 12.0)
_SLOW_DELAY_S = (0.001, 0.006)
_UPLOADING_SHARE = 0.4
"""Share of the processes that upload usage statistics."""
_CHUNK_BYTES = 256 * 1024
"""Size of an allocation, large enough to be returned to the system when freed."""
_COLD_SHARE = 0.6
_WARM_REQUESTS = 2000


def compile_round(name: str, work: BackgroundWork, service: ServiceContext) -> Round:
    """Return the function that runs one round of the consumer or task `name`."""
    location = work.location or name
    steps = compile_steps(work.steps, service, location)

    async def find_failure(values: dict[str, Any], span: Span | None) -> str | None:
        try:
            if work.work_ms:
                service.cpu.work(work.work_ms)
            await steps(RequestContext(values=values, trace=span))
        except (RpcError, BadRequest) as error:
            return str(error)
        except Exception as error:
            traceback.print_exc()
            return str(error) or type(error).__name__
        return None

    async def run(values: dict[str, Any], span: Span | None) -> bool:
        if work.log:
            service.log.trace(location, work.log if span is None else f"{work.log} {format_ids(span)}")
        try:
            failure = await find_failure(values, span)
            if failure is not None:
                service.log.error(location, f"{name} failed: {failure}")
                if span is not None and service.persona.spans.reports_outcome:
                    span.fail(failure)
            return failure is None
        finally:
            if span is not None:
                span.end()

    return run


async def run_task(name: str, task: Task, service: ServiceContext) -> None:
    """Run a task every `every_s` seconds forever, the first time after one interval."""
    run_round = compile_round(name, task, service)
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    while True:
        due_s = max(due_s + task.every_s, loop.time())
        await asyncio.sleep(due_s - loop.time())
        await run_round({}, None if task.span is None else service.tracing.internal(task.span, None))


class MessageConsumer:
    """One member of a consumer group.

    Parameters
    ----------
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
        metrics, system, labels = service.metrics, broker.driver.system, ("messaging_system", "destination", "group")
        values = (consumer.topic, self._group)
        lag_text = "Messages that the group has not acknowledged."
        self._lag = metrics.gauge(f"{system}_consumer_group_lag", ("topic", "group"), lag_text).labels(*values)
        self._consumed = metrics.counter("messaging_client_consumed_messages", labels, "Messages consumed.").labels(
            system, *values
        )
        self._duration = metrics.histogram(
            "messaging_process_duration_seconds", labels, "Duration of the processing of messages."
        ).labels(system, *values)
        self._claimed_at = self._measured_at = 0.0
        self._rebalances = rebalances
        self._rebalance_at = self._draw_rebalance()

    async def run(self) -> None:
        """Take, process and acknowledge messages until cancelled; wait a second after each failure of the broker.

        The lag is measured even if the account has lost the right to read messages.
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
                await asyncio.sleep(_RETRY_PAUSE_S)

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
            await asyncio.sleep(_RETRY_PAUSE_S)
        await self._broker.acknowledge(topic, self._group, [message.identity])

    def _start_span(self, message: BrokerMessage) -> Span | None:
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


class BackgroundErrorEmitter:
    """Produces the background errors of one process; failing uploads connect to `address`."""

    def __init__(self, rates: BackgroundErrors, log: Log, location: str, address: str):
        self._rates, self._log, self._location, self._address = rates, log, location, address
        self._delay_s = 0.0

    def tasks(self) -> list[Awaitable[None]]:
        """Return the background work that produces errors."""
        tasks: list[Awaitable[None]] = []
        if self._rates.failed_uploads and random.random() < _UPLOADING_SHARE:
            tasks.append(_repeat(self._rates.failed_uploads / _UPLOADING_SHARE, self._upload))
        if self._rates.slow_phases:
            tasks.append(_repeat(self._rates.slow_phases, self._slow_down))
        return tasks

    async def delay(self) -> None:
        if self._delay_s:
            await asyncio.sleep(self._delay_s * random.random())

    def is_healthy(self) -> bool:
        """Decide at random whether the next health probe succeeds."""
        return random.random() >= self._rates.unhealthy_answers

    async def _upload(self) -> None:
        try:
            _, writer = await asyncio.open_connection(self._address, _CLOSED_PORT)
        except OSError as error:
            self._log.warning(self._location, f"upload of usage statistics failed, will retry: {error}")
            traceback.print_exc()
        else:
            writer.close()

    async def _slow_down(self) -> None:
        self._delay_s = random.uniform(*_SLOW_DELAY_S)
        await asyncio.sleep(random.uniform(*_SLOW_PHASE_S))
        self._delay_s = 0.0


async def _repeat(per_minute: float, act: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(random.expovariate(per_minute / 60))
        await act()


_PAGE_CONTENT = bytes(range(256)) * 16


class Heap:
    """Live data and garbage of one process, with the runtime metrics of the original's language, if one is given."""

    def __init__(self, use: HeapUse, metrics: Metrics, language: Language | None):
        self._use, self._metrics = use, metrics
        self._live: list[bytes] = []
        self._garbage: list[bytes] = []
        self._requests = self._due_bytes = 0
        self._pauses: Summary | None = None
        self._grow_to(_COLD_SHARE)
        if language is not None:
            self._export(language)

    @property
    def used_bytes(self) -> int:
        return _CHUNK_BYTES * (len(self._live) + len(self._garbage))

    def allocate(self) -> None:
        """Allocate the memory of one request; free the garbage once enough has accumulated."""
        self._requests += 1
        if self._requests <= _WARM_REQUESTS:
            self._grow_to(_COLD_SHARE + (1 - _COLD_SHARE) * self._requests / _WARM_REQUESTS)
        self._due_bytes += int(self._use.request_kib * 1024)
        while self._due_bytes >= _CHUNK_BYTES:
            self._due_bytes -= _CHUNK_BYTES
            self._garbage.append(_build_chunk())
        if _CHUNK_BYTES * len(self._garbage) >= self._use.garbage_mib * 2**20:
            self._collect()

    def _grow_to(self, share: float) -> None:
        while _CHUNK_BYTES * (len(self._live) + 1) <= share * self._use.live_mib * 2**20:
            self._live.append(_build_chunk())

    def _collect(self) -> None:
        start = time.perf_counter()
        self._garbage.clear()
        gc.collect(0)
        if self._pauses is not None:
            self._pauses.observe(time.perf_counter() - start)

    def _export(self, language: Language) -> None:
        registry = self._metrics.registry
        if language == "python":
            GCCollector(registry=registry)
            return

        def gauge(name: str, text: str, read: Callable[[], float], **labels: str) -> None:
            metric = self._metrics.gauge(name, tuple(labels), text)
            (metric.labels(**labels) if labels else metric).set_function(read)

        def used_bytes() -> int:
            return self.used_bytes

        pauses = {"go": "go_gc_duration_seconds", "jvm": "jvm_gc_pause_seconds", "nodejs": "nodejs_gc_duration_seconds"}
        if language == "go":
            gauge("go_memstats_heap_inuse_bytes", "Bytes of the heap in use.", used_bytes)
            gauge("go_goroutines", "Number of tasks.", _count_tasks)
            gauge("go_threads", "Number of threads.", threading.active_count)
        elif language == "jvm":
            gauge("jvm_memory_used_bytes", "Bytes of memory in use.", used_bytes, area="heap")
            gauge("jvm_threads_live_threads", "Number of threads.", threading.active_count)
        else:
            gauge("nodejs_heap_size_used_bytes", "Bytes of the heap in use.", used_bytes)
        self._pauses = Summary(pauses[language], "Duration of collections.", registry=registry)


def _build_chunk() -> bytes:
    """Return a chunk with all pages written, so that it occupies physical memory."""
    return _PAGE_CONTENT * (_CHUNK_BYTES // len(_PAGE_CONTENT))


def _count_tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0
